//! The messaging port: gRPC, gRPC-Web and the binary protocol on one number.

use std::sync::Arc;

use axum::Router;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::http::{self, Http};
use super::prefixed::Prefixed;
use super::sniff::{Protocol, protocol};
use crate::doors::tcp;
use crate::doors::tcp::Input;

/// What is behind the messaging port; clones are cheap.
#[derive(Clone)]
pub struct MessagingPort {
    tcp: Arc<tcp::Door>,
    http: Arc<Http>,
    grpc: Router,
}

impl MessagingPort {
    /// `grpc` gets all that is HTTP.
    pub fn new(tcp: tcp::Door, grpc: Router) -> Self {
        Self {
            tcp: Arc::new(tcp),
            http: Arc::new(http::http1_and_2()),
            grpc,
        }
    }

    /// Serves one connection until it ends, or soon after `stop` is cancelled.
    pub async fn serve(self, mut stream: TcpStream, stop: CancellationToken) {
        let mut input = Input::default();
        // A connection may stay silent for as long as it likes, and say its first bytes one at a time.
        let spoken = loop {
            if let Some(spoken) = protocol(input.bytes()) {
                break spoken;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                read = input.fill(&mut stream) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(_) => {}
                },
            }
        };
        let peer = stream.peer_addr().ok();
        match spoken {
            Protocol::Binary => self.tcp.serve(stream, input, peer, stop).await,
            Protocol::Http => {
                let stream = Prefixed::new(input.into_bytes(), stream);
                http::serve(stream, &self.http, self.grpc, &stop).await;
            }
            Protocol::Tls => warn!(
                ?peer,
                "closing the connection of a client that speaks TLS: TLS is not enabled"
            ),
        }
    }
}
