//! Bodies of the admin port that no other door has: a byte that chooses one, then the body.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code, reason = "parts of it are for refusals")]
#[path = "../../server/src/doors/http/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "parts of it are for other bodies")]
#[path = "../../server/src/doors/body.rs"]
mod body;

/// As the server has it.
mod doors {
    pub(crate) use super::body;
}

use bodies::{Ack, Nack, Purge, Redrive};
use body::{InvalidBody, read};

/// Errors quote what was sent, but never all of it.
const ERROR_BYTES_MAX: usize = 300;

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else { return };
    let bytes = match kind % 4 {
        0 => read::<Ack<'_>>(body).map(|ack| ack.id.len()),
        1 => read::<Nack<'_>>(body).map(|nack| {
            // Nothing said is no refusal.
            assert!(!nack.dead_letter() || body.len() > r#"{"requeue":false}"#.len() - 1);
            nack.id.len()
        }),
        2 => read::<Purge<'_>>(body).map(|purge| purge.queue.len()),
        _ => read::<Redrive<'_>>(body).map(|redrive| {
            assert!(redrive.headers.is_sorted_by(|one, other| one.0 < other.0));
            let headers = redrive.headers.iter().map(|(key, value)| key.len() + value.len());
            redrive.queue.len() + headers.sum::<usize>()
        }),
    };
    match bytes {
        // What is read is never more than what was sent.
        Ok(bytes) => assert!(bytes <= body.len(), "{bytes}"),
        Err(error) => check(&error),
    }
});

fn check(error: &InvalidBody) {
    let text = error.to_string();
    assert!(text.len() <= ERROR_BYTES_MAX, "{}", text.len());
}
