//! Where the server is: `host` or `host:port`, with or without `http://` or `https://` in front of it.
//!
//! What a URI parser takes is not enough: `host:abc` is a URI whose port is that of the scheme, and `::1` is one with nonsense
//! in it. So an address is taken apart here, and what is no host or no port is refused by name.

use std::net::{IpAddr, Ipv6Addr};

const PORT_DEFAULT: u16 = 9091;
/// Longest name that DNS has.
const HOST_BYTES_MAX: usize = 253;
/// Ends every refusal.
const WANTED: &str = "write HOST:PORT, as localhost:9091 or [::1]:9091, in --addr or BOLTQ_ADDR";

/// A server, and whether its address says how to speak to it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Of an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `https://` or `http://`, if one of them is there.
    pub(crate) secure: Option<bool>,
}

impl Address {
    /// Without a port, that of a server that nobody configured.
    ///
    /// # Errors
    /// It is none. The text names it, and says what is wanted.
    pub(crate) fn read(addr: &str) -> Result<Self, String> {
        read(addr).map_err(|why| format!("address {addr:?} cannot be used: {why}; {WANTED}"))
    }

    /// As a URI. What is encrypted is so below HTTP, which does not know.
    pub(crate) fn uri(&self) -> String {
        match self.host.contains(':') {
            true => format!("http://[{}]:{}", self.host, self.port),
            false => format!("http://{}:{}", self.host, self.port),
        }
    }
}

fn read(addr: &str) -> Result<Address, String> {
    let (secure, bare) = match (addr.strip_prefix("https://"), addr.strip_prefix("http://")) {
        (Some(bare), _) => (Some(true), bare),
        (None, Some(bare)) => (Some(false), bare),
        (None, None) => (None, addr),
    };
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    if bare.is_empty() {
        return Err("it is empty".to_owned());
    }
    let (host, port) = split(bare)?;
    if !is_host(host) {
        return Err(format!("{host:?} is neither a name nor an IP address"));
    }
    let unbracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    Ok(Address {
        host: unbracketed.unwrap_or(host).to_owned(),
        port: port.map_or(Ok(PORT_DEFAULT), self::port)?,
        secure,
    })
}

/// Host and port as they are written; an IPv6 address keeps its brackets.
fn split(bare: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(end) = bare.rfind(']') {
        let (host, rest) = bare.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(format!("there is no `:` between {host:?} and {rest:?}")),
        };
    }
    match bare.rsplit_once(':') {
        None => Ok((bare, None)),
        Some((host, _)) if host.contains(':') => Err("an IPv6 address needs brackets".to_owned()),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

fn port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(port) if digits && port != 0 => Ok(port),
        _ => Err(format!("port {text:?} is not a number from 1 to 65535")),
    }
}

fn is_host(host: &str) -> bool {
    if let Some(inner) = host.strip_prefix('[') {
        return inner
            .strip_suffix(']')
            .is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
    }
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let is_name = (1..=HOST_BYTES_MAX).contains(&host.len()) && host.bytes().all(named);
    is_name || host.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_a_scheme_and_the_default_port() {
        for (addr, expected) in [
            ("localhost:9091", "http://localhost:9091"),
            ("http://10.0.0.1:80/", "http://10.0.0.1:80"),
            ("broker", "http://broker:9091"),
            ("node_1.example:65535", "http://node_1.example:65535"),
            ("[::1]", "http://[::1]:9091"),
            ("[::1]:80", "http://[::1]:80"),
        ] {
            assert_eq!(Address::read(addr).unwrap().uri(), expected);
        }
    }

    #[test]
    fn the_scheme_says_whether_it_is_encrypted_and_nothing_leaves_it_open() {
        for (addr, secure) in [("https://a:1", Some(true)), ("http://a:1/", Some(false)), ("a:1", None)] {
            let host = "a".to_owned();
            assert_eq!(Address::read(addr), Ok(Address { host, port: 1, secure }));
        }
    }

    #[test]
    fn what_is_no_address_is_refused_for_its_reason() {
        for (addr, why) in [
            ("", "it is empty"),
            ("http://", "it is empty"),
            ("https://", "it is empty"),
            ("host:abc", "port \"abc\" is not a number from 1 to 65535"),
            ("host:", "port \"\" is not a number from 1 to 65535"),
            ("host:0", "port \"0\" is not a number from 1 to 65535"),
            ("host:+1", "port \"+1\" is not a number from 1 to 65535"),
            ("host:99999", "port \"99999\" is not a number from 1 to 65535"),
            ("[::1]:abc", "port \"abc\" is not a number from 1 to 65535"),
            ("::1", "an IPv6 address needs brackets"),
            ("::1:9091", "an IPv6 address needs brackets"),
            ("a:1:2", "an IPv6 address needs brackets"),
            ("[::1]9091", "there is no `:` between \"[::1]\" and \"9091\""),
            ("[host]:1", "\"[host]\" is neither a name nor an IP address"),
            (":9091", "\"\" is neither a name nor an IP address"),
            ("a:1/path", "port \"1/path\" is not a number from 1 to 65535"),
            ("user@host:1", "\"user@host\" is neither a name nor an IP address"),
            ("a b", "\"a b\" is neither a name nor an IP address"),
        ] {
            let wanted = format!("address {addr:?} cannot be used: {why}; {WANTED}");
            assert_eq!(Address::read(addr), Err(wanted), "{addr}");
        }
    }
}
