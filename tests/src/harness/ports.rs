//! Ports for servers.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below the range from which Linux gives ports to clients, so that a connection of another test cannot take one
/// between the check here and the server's own bind.
const FIRST: u32 = 12_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port of 127.0.0.1 that nobody listens on now. Each call of a process gives another one.
pub fn free_port() -> u16 {
    free(1)
}

/// Two of them, one behind the other, as a server has them by default: clients of the cache look for its admin port
/// below its messaging port.
pub fn free_neighbours() -> (u16, u16) {
    let port = free(2);
    (port, port + 1)
}

/// The first of so many.
fn free(count: u16) -> u16 {
    // Test executables run one after the other, but a person may run two: start at different places.
    let start = std::process::id().wrapping_mul(7_919) % COUNT;
    for _ in 0..COUNT {
        let step = NEXT.fetch_add(count.into(), Ordering::Relaxed);
        let first = u16::try_from(FIRST + (start + step) % COUNT).expect("the range ends below 65,536");
        if (first..first + count).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return first;
        }
    }
    panic!("no {count} ports between {FIRST} and {} are free", FIRST + COUNT);
}
