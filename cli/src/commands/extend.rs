//! `boltq extend`

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::{ExtendLeaseRequest, ExtendLeaseResponse};
use bytes::Bytes;

use super::settle::reason;
use super::{Context, wire};
use crate::args::Extend;
use crate::connect::answer;
use crate::error::{CliError, NotExtended};
use crate::printer::{Extended, TokenFailure};

pub(super) async fn run(context: &mut Context, extend: Extend) -> Result<(), CliError> {
    let lease = wire(extend.lease)?;
    let mut extended: u64 = 0;
    let mut failures = Vec::new();
    for tokens in extend.tokens.chunks(BATCH_MESSAGES_MAX) {
        let request = ExtendLeaseRequest {
            delivery_tokens: tokens.iter().map(|token| Bytes::clone(&token.0)).collect(),
            lease: Some(lease),
        };
        let mut client = context.server.queues();
        let ExtendLeaseResponse {
            extended: some,
            failures: refused,
        } = answer(client.extend_lease(request), None).await?;
        extended += u64::from(some);
        failures.extend(refused.iter().map(|failure| TokenFailure {
            delivery_token: STANDARD.encode(&failure.token),
            reason: reason(failure),
        }));
    }
    let not_extended: Vec<_> = failures
        .iter()
        .map(|failure| NotExtended {
            token: failure.delivery_token.clone(),
            reason: failure.reason,
        })
        .collect();
    context.printer.print(&Extended { extended, failures })?;
    match not_extended.is_empty() {
        true => Ok(()),
        false => Err(CliError::NotExtended(not_extended)),
    }
}
