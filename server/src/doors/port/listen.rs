//! Opening a port.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Connections that wait to be accepted. After a restart all clients come back at once, and who finds the queue full
/// tries again only after a second. The system may have a lower bound (net.core.somaxconn).
const BACKLOG: u32 = 4_096;

/// Listens on the first address of `host` that can be used.
///
/// # Errors
/// It has none, or none can be used; the error is that of the last.
pub async fn listen(host: &str, port: u16) -> io::Result<TcpListener> {
    let mut last = None;
    for address in lookup_host((host, port)).await? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")))
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    // Connections of a server that has just ended do not keep the next one out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
