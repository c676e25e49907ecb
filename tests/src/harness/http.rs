//! HTTP/1.1 by hand: the admin port has to answer plain requests as they stand on the wire.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Some requests wait for a minute.
const TIMEOUT: Duration = Duration::from_secs(90);

/// An answer, as it came.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Names in lower case, with their values, in the order of the answer.
    pub headers: Vec<(String, String)>,
    /// The body; chunks are joined.
    pub body: Vec<u8>,
}

impl Response {
    /// The first header of this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the body has as many bytes as it was to have.
    fn is_whole(&self) -> bool {
        let length = self.header("content-length").map(str::parse);
        length.is_none_or(|length| length == Ok(self.body.len()))
    }

    /// The body as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a body of UTF-8")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

/// `GET path`.
///
/// # Errors
/// Nobody listens, or what came is no HTTP.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    request(address, "GET", path, &[], b"")
}

/// One request on a connection of its own.
///
/// # Errors
/// Nobody listens, or what came is no HTTP.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    request_over(stream, (method, path), headers, body)
}

/// One request on a connection that is there, which ends with the answer.
///
/// # Errors
/// The connection broke, or what came is no HTTP.
pub fn request_over(
    mut stream: impl Read + Write,
    (method, path): (&str, &str),
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Response> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        head.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes())?;
    // A server that refuses a body before it was read to its end closes behind its answer, which is there all the same.
    let sent = stream.write_all(body).and_then(|()| stream.flush());
    let mut raw = Vec::new();
    let ended = stream.read_to_end(&mut raw);
    let broken = || io::Error::new(io::ErrorKind::InvalidData, String::from_utf8_lossy(&raw).into_owned());
    let whole = parse(&raw).filter(|response| method == "HEAD" || response.is_whole());
    whole.ok_or_else(|| sent.and(ended.map(drop)).err().unwrap_or_else(broken))
}

fn parse(raw: &[u8]) -> Option<Response> {
    let end = raw.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&raw[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers
        .iter()
        .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let rest = &raw[end + 4..];
    let body = if chunked { join_chunks(rest)? } else { rest.to_vec() };
    Some(Response { status, headers, body })
}

fn join_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + length)?);
        rest = rest.get(end + 2 + length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined_and_names_are_lower_case() {
        let raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        let response = parse(raw).unwrap();
        assert_eq!(
            (response.status, response.text(), response.header("x-a")),
            (200, "abcde", Some("b"))
        );
    }
}
