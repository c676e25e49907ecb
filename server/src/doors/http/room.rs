//! Room for answers with messages or values, which is counted until their clients have read them.

use std::sync::Arc;

use axum::extract::Extension;
use axum::response::Response;

use crate::doors::intake::{Hold, Reader};

/// Who reads the answer; nobody is known where no connection is.
pub(super) type Client = Option<Extension<Arc<Reader>>>;

/// Waits for room for an answer of so many bytes.
pub(super) async fn hold(client: Option<&Extension<Arc<Reader>>>, bytes: usize) -> Option<Hold> {
    match client {
        Some(Extension(reader)) => Some(reader.hold(bytes, None).await),
        None => None,
    }
}

/// The answer, which has so many bytes, and holds room for them until it has left.
pub(super) fn held(mut answer: Response, bytes: usize, hold: Option<Hold>) -> Response {
    if let Some(mut hold) = hold {
        hold.shrink(bytes);
        answer.extensions_mut().insert(Arc::new(hold));
    }
    answer
}
