//! Answers that are written while they are read, so that nobody holds all of one.

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::refusal::Refusal;
use super::router::json;

/// A part is sent when it has so many bytes, or a little more.
pub(super) const PART_BYTES: usize = 64 << 10;

/// Where an answer is written to, a part at a time.
pub(super) struct Sink(mpsc::Sender<Result<Bytes, Refusal>>);

/// The client is gone, or reads no more.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the client is gone")]
pub(super) struct Gone;

impl Sink {
    /// Sends what there is. Waits until what was sent before is read.
    pub(super) async fn send(&self, part: &mut Vec<u8>) -> Result<(), Gone> {
        let part = Bytes::from(std::mem::take(part));
        self.0.send(Ok(part)).await.map_err(|_| Gone)
    }
}

/// An answer of JSON that `write` makes. If it fails before it has sent anything, that is the answer; if it fails later, the
/// connection ends before the answer does, which every client notices.
pub(super) async fn streamed<F>(write: impl FnOnce(Sink) -> F) -> Result<Response, Refusal>
where
    F: Future<Output = Result<(), Refusal>> + Send + 'static,
{
    let (sender, mut parts) = mpsc::channel(1);
    let written = write(Sink(sender.clone()));
    tokio::spawn(async move {
        if let Err(refusal) = written.await {
            // A client that is gone needs no reason.
            let _ = sender.send(Err(refusal)).await;
        }
    });
    let first = parts.recv().await.unwrap_or_else(|| Ok(Bytes::new()))?;
    let rest = ReceiverStream::new(parts).map(|part| part.map_err(|_| Gone));
    let parts = stream::once(std::future::ready(Ok(first))).chain(rest);
    Ok(json(StatusCode::OK, Body::from_stream(parts)))
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    #[tokio::test]
    async fn a_failure_is_the_answer_until_there_is_a_part_and_breaks_it_off_then() {
        let refused = || Refusal::bad_request("why");
        let response = streamed(|_| async move { Err(refused()) }).await;
        assert_eq!(response.err(), Some(refused()));
        let response = streamed(|sink| async move {
            let _ = sink.send(&mut b"part".to_vec()).await;
            Err(Refusal::NoLeader)
        });
        assert!(to_bytes(response.await.unwrap().into_body(), 100).await.is_err());
        let response = streamed(|sink| async move {
            for part in [b"one", b"two"] {
                let _ = sink.send(&mut part.to_vec()).await;
            }
            Ok(())
        });
        assert_eq!(
            &to_bytes(response.await.unwrap().into_body(), 100).await.unwrap()[..],
            b"onetwo"
        );
    }
}
