//! What the text of single keys means.

use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use boltq_core::check_name;

use super::api_key::ApiKey;
use super::secret::ClusterSecret;
use crate::telemetry::LogFilter;

/// Longest name that DNS has.
const HOST_BYTES_MAX: usize = 253;

/// Where to listen. The host has no brackets, also if it is an IPv6 address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listen {
    pub(super) host: String,
    pub(super) port: u16,
}

/// Where traces go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collector {
    /// Host and port, with the scheme before them.
    pub url: String,
}

pub(super) fn not_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn path(text: &str) -> Option<PathBuf> {
    not_empty(text).map(PathBuf::from)
}

/// `None` inside if it is empty.
pub(super) fn optional_path(text: &str) -> Option<Option<PathBuf>> {
    Some(path(text))
}

/// A key that every client can show as it is: metadata of gRPC and headers of HTTP carry no more, and lose spaces at the ends.
pub(super) fn api_key(text: &str) -> Option<ApiKey> {
    let sent = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text;
    sent.then(|| ApiKey::new(text))
}

pub(super) fn cluster_secret(text: &str) -> Option<ClusterSecret> {
    ClusterSecret::new(text)
}

pub(super) fn filter(text: &str) -> Option<LogFilter> {
    text.parse().ok()
}

/// A name of a node; `None` inside if it is empty.
pub(super) fn node_name(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    check_name(text).is_ok().then(|| Some(text.to_owned()))
}

/// `host:port`, where port 0 is a free one.
pub(super) fn listen(text: &str) -> Option<Listen> {
    let (host, port) = split(text)?;
    let host = host.to_owned();
    Some(Listen { host, port })
}

/// `host:port` of another node, as it was written.
pub(super) fn seed(text: &str) -> Option<String> {
    let (_, port) = split(text)?;
    (port != 0).then(|| text.to_owned())
}

/// The address of a collector; `None` inside if it is empty. A slash at its end is no path.
pub(super) fn collector(text: &str) -> Option<Option<Collector>> {
    if text.is_empty() {
        return Some(None);
    }
    let address = text.strip_prefix("http://")?;
    let address = address.strip_suffix('/').unwrap_or(address);
    let (_, port) = split(address)?;
    let url = format!("http://{address}");
    (port != 0).then_some(Some(Collector { url }))
}

/// A host that others can dial, without brackets; `None` inside if it is empty.
pub(super) fn advertised(text: &str) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(None);
    }
    let bare = unbracketed(text)?;
    (is_host(bare) && !is_wildcard(bare)).then(|| Some(bare.to_owned()))
}

/// Whether the host stands for all addresses of a machine, which means nothing to another one.
pub(super) fn is_wildcard(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

/// An IP address, or a name as DNS has them.
fn is_host(host: &str) -> bool {
    let named = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let is_name = (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(named);
    is_name || host.parse::<IpAddr>().is_ok()
}

/// Takes the brackets from an IPv6 address, which is all that may stand in some.
fn unbracketed(host: &str) -> Option<&str> {
    let Some(opened) = host.strip_prefix('[') else {
        return Some(host);
    };
    opened
        .strip_suffix(']')
        .filter(|inner| inner.parse::<Ipv6Addr>().is_ok())
}

/// An IPv6 address needs its brackets here: which colon is the last one of `::1:9100` is anybody's guess.
fn split(text: &str) -> Option<(&str, u16)> {
    let (written, port) = text.rsplit_once(':')?;
    let host = unbracketed(written)?;
    let brackets_missing = host.contains(':') && host.len() == written.len();
    let digits = port.bytes().all(|b| b.is_ascii_digit());
    if brackets_missing || !is_host(host) || !digits {
        return None;
    }
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(host: &str, port: u16) -> Option<Listen> {
        let host = host.to_owned();
        Some(Listen { host, port })
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        assert_eq!(listen("0.0.0.0:9100"), listening("0.0.0.0", 9_100));
        assert_eq!(listen("node-1.example:0"), listening("node-1.example", 0));
        assert_eq!(listen("[::]:9100"), listening("::", 9_100));
        assert_eq!(seed("[::1]:9090"), Some("[::1]:9090".to_owned()));
        assert_eq!(seed("a:0"), None, "nobody can be asked at port 0");
        for wrong in [
            "",
            ":9100",
            "9100",
            "a",
            "a:",
            "a:x",
            "a:+1",
            "a:65536",
            "a b:1",
            "http://a:9090",
            "a:9090/",
            "::1:9100",
            "[a]:1",
            "[::1:1",
            "[]:1",
        ] {
            assert_eq!(listen(wrong), None, "{wrong}");
            assert_eq!(seed(wrong), None, "{wrong}");
        }
        assert_eq!(listen(&format!("{}:1", "x".repeat(HOST_BYTES_MAX + 1))), None);
    }

    #[test]
    fn what_others_dial_is_a_host_and_no_wildcard() {
        assert_eq!(advertised(""), Some(None));
        for (written, host) in [
            ("10.0.0.1", "10.0.0.1"),
            ("n1", "n1"),
            ("[fd00::1]", "fd00::1"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(advertised(written), Some(Some(host.to_owned())));
        }
        for wrong in ["0.0.0.0", "::", "[::]", "a:9100", "a b", "[a]", " "] {
            assert_eq!(advertised(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_collector_is_a_url_without_a_path() {
        let url = |text| collector(text).map(|collector| collector.map(|collector| collector.url));
        assert_eq!(url(""), Some(None));
        for (written, read) in [
            ("http://localhost:4317", "http://localhost:4317"),
            ("http://[::1]:4317/", "http://[::1]:4317"),
        ] {
            assert_eq!(url(written), Some(Some(read.to_owned())));
        }
        for wrong in [
            "localhost:4317",
            "http://a",
            "http://a:0",
            "http://a:1/v1",
            "https://a:1",
            "http://",
        ] {
            assert_eq!(collector(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_is_what_a_header_can_carry_as_it_is() {
        for key in ["", "s3cret", "two words", "~!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}"] {
            assert!(api_key(key).is_some(), "{key}");
        }
        for key in [" a", "a ", "a\n", "a\tb", "schl\u{fc}ssel", "\u{fffd}", "\u{7f}"] {
            assert!(api_key(key).is_none(), "{key:?}");
        }
    }

    #[test]
    fn nodes_are_named_like_everything_else() {
        assert_eq!(node_name(""), Some(None));
        assert_eq!(node_name("größe 1"), Some(Some("größe 1".to_owned())));
        assert_eq!(node_name("a\nb"), None);
        assert_eq!(node_name(&"x".repeat(201)), None);
    }
}
