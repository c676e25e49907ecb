//! Where a server listens.

use crate::Error;

/// The messaging port of a server that nobody configured.
const PORT_DEFAULT: u16 = 9091;

/// Host and port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    /// Without the brackets of IPv6.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads `host`, `host:port`, `[::1]:port`, and each with `http://` or `https://` in front, which says whether to speak TLS.
    pub(crate) fn read(text: &str) -> Result<(Self, Option<bool>), Error> {
        let wrong = |why: &str| {
            Error::Usage(format!(
                "address {text:?} {why}; write host:port, for example localhost:9091"
            ))
        };
        let (secure, rest) = match text.split_once("://") {
            None => (None, text),
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some(_) => return Err(wrong("has another scheme than http or https")),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(bracketed) => {
                let (host, behind) = bracketed.split_once(']').ok_or_else(|| wrong("has no \"]\""))?;
                (host, behind.strip_prefix(':'))
            }
            // More than one colon: an IPv6 address without a port.
            None => match rest.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                Some(_) | None => (rest, None),
            },
        };
        if host.is_empty() || host.contains(['/', '?', '#', '@']) {
            return Err(wrong("has no host"));
        }
        let port = match port {
            None => PORT_DEFAULT,
            Some(port) => port.parse().map_err(|_| wrong("has no port"))?,
        };
        let host = host.to_owned();
        Ok((Self { host, port }, secure))
    }

    /// As a URI names it.
    pub(crate) fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_with_and_without_port_and_scheme() {
        let read = |text| {
            Address::read(text)
                .map(|(address, secure)| (address.host.clone(), address.port, secure, address.authority()))
        };
        let expected =
            |host: &str, port, secure, authority: &str| (host.to_owned(), port, secure, authority.to_owned());
        assert_eq!(read("mq").unwrap(), expected("mq", 9091, None, "mq:9091"));
        assert_eq!(read("mq:1").unwrap(), expected("mq", 1, None, "mq:1"));
        assert_eq!(read("https://mq:1/").unwrap(), expected("mq", 1, Some(true), "mq:1"));
        assert_eq!(
            read("http://[::1]:7").unwrap(),
            expected("::1", 7, Some(false), "[::1]:7")
        );
        assert_eq!(read("::1").unwrap(), expected("::1", 9091, None, "[::1]:9091"));
        for wrong in [
            "", ":1", "mq:", "mq:x", "mq:70000", "ftp://mq", "[::1", "mq/x", "user@mq",
        ] {
            assert!(matches!(read(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
