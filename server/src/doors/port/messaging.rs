//! The messaging port: gRPC, gRPC-Web and the binary protocol on one number.

use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use tokio::io::AsyncRead;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::http::{self, HEAD_TIMEOUT, Http};
use super::prefixed::Prefixed;
use super::sniff::{Protocol, http_is_known, protocol};
use crate::access::{Access, Client};
use crate::doors::intake::Intake;
use crate::doors::tcp;
use crate::doors::tcp::Input;
use crate::tls::{PortTls, Stream};

/// What is behind the messaging port; clones are cheap.
#[derive(Clone)]
pub struct MessagingPort {
    tcp: Arc<tcp::Door>,
    http: Arc<Http>,
    grpc: Router,
    intake: Arc<Intake>,
    tls: PortTls,
    access: Arc<Access>,
}

impl MessagingPort {
    /// `grpc` gets all that is HTTP.
    pub fn new(tcp: tcp::Door, grpc: Router, intake: Arc<Intake>, tls: PortTls, access: Arc<Access>) -> Self {
        Self {
            tcp: Arc::new(tcp),
            http: Arc::new(http::http1_and_2()),
            grpc,
            intake,
            tls,
            access,
        }
    }

    /// Serves one connection until it ends, or soon after `stop` is cancelled.
    pub async fn serve(self, stream: TcpStream, stop: CancellationToken) {
        let Some(stream) = self.tls.accept(stream, &stop).await else {
            return;
        };
        let client = Arc::new(Client::new(stream.peer()));
        let access = self.access.clone();
        // Here, and not once more in what waits for it: this is all that a connection holds.
        let serving = pin!(self.serve_stream(stream, &client, stop));
        access.while_patient(&client, serving).await;
    }

    async fn serve_stream(self, mut stream: Stream, client: &Arc<Client>, stop: CancellationToken) {
        let mut input = Input::new(&self.intake.connection());
        let known = async {
            // Where no key is wanted, a connection may stay silent for as long as it likes.
            let spoken = read_until(&mut input, &mut stream, protocol).await?;
            if spoken == Protocol::Http {
                // Which one decides about its timeouts, so that until then there has to be one here.
                let known = |bytes: &[u8]| http_is_known(bytes).then_some(());
                timeout(HEAD_TIMEOUT, read_until(&mut input, &mut stream, known))
                    .await
                    .ok()??;
            }
            Some(spoken)
        };
        let spoken = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            spoken = known => spoken,
        };
        match spoken {
            None => {}
            Some(Protocol::Binary) => self.tcp.accept(stream, input, client, stop).await,
            Some(Protocol::Http) => {
                let stream = Prefixed::new(input.into_bytes(), stream);
                http::serve(stream, &self.http, self.grpc, (&self.intake, client), &stop).await;
            }
            Some(Protocol::Tls) => warn!(
                peer = ?client.peer(),
                "closing the connection of a client that speaks TLS: {}",
                if self.tls.is_enabled() { "it did so before" } else { "server.tls.enabled is not set" }
            ),
        }
    }
}

/// Reads until `answer` has one. `None`: the connection ended, or will never have said enough.
async fn read_until<T, S: AsyncRead + Unpin>(
    input: &mut Input,
    stream: &mut S,
    answer: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    loop {
        if let Some(answer) = answer(input.bytes()) {
            return Some(answer);
        }
        if input.fill(stream).await.ok()? == 0 {
            return None;
        }
    }
}
