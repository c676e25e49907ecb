//! What has to be true after any input.

use std::net::SocketAddr;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{Server, http};
use serde_json::json;

/// What a server may keep of bad input: buffers of connections that are being closed, arenas of the allocator.
const GROWTH_BYTES_MAX: u64 = 40 * 1024 * 1024;

/// A server whose memory is known from before the bad input.
pub(crate) struct Watched {
    server: Server,
    rss_bytes: u64,
}

impl Watched {
    /// Uses the server a little, so that what it needs in any case is not counted later.
    pub(crate) fn new(server: Server) -> Self {
        for number in 0..100 {
            let mut client = BinaryClient::connect(server.messaging());
            client.publish("warm", &json!(number));
            let taken = client.consume("warm").expect("what was published");
            client.ack(&taken.id).ok();
        }
        let rss_bytes = server.stat().rss_bytes();
        Self { server, rss_bytes }
    }

    pub(crate) fn messaging(&self) -> SocketAddr {
        self.server.messaging()
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.server.admin()
    }

    /// Memory above that from before the bad input.
    pub(crate) fn growth_bytes(&self) -> u64 {
        self.server.stat().rss_bytes().saturating_sub(self.rss_bytes)
    }

    /// All doors work and memory is flat.
    pub(crate) async fn check(mut self) {
        assert_eq!(self.server.exited(), None, "the server is up");
        assert_eq!(http::get(self.admin(), "/readyz").expect("an answer").status, 200);
        let mut grpc = connect(self.messaging()).await;
        grpc.put("after", message("x")).await;
        let mut binary = BinaryClient::connect(self.messaging());
        let taken = binary.consume("after").expect("what was published");
        binary.ack(&taken.id).ok();
        let grown = self.growth_bytes();
        assert!(grown < GROWTH_BYTES_MAX, "memory grew by {} MiB", grown >> 20);
        let log = self.server.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}
