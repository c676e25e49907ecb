//! Ports for servers.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which Linux gives ports to clients, so that a connection of another test cannot take one
/// between the check here and the server's own bind.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

/// A port of 127.0.0.1 that nobody listens on now. Each call of a process gives another one.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test executables run one after the other, but a person may run two: start at different places.
    let start = std::process::id().wrapping_mul(7_919) % COUNT;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST + (start + step) % COUNT).expect("the range ends below 65,536");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no port between {FIRST} and {} is free", FIRST + COUNT);
}
