//! What acknowledging and giving back have in common.

use std::collections::HashMap;

use boltq_core::MessageId;
use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_proto::queue::v1::{Delivery, SettleFailure};
use bytes::Bytes;

use super::{Context, note};
use crate::error::{CliError, Unsettled};
use crate::printer::{Failure, Id, Settled};

/// Settles `ids` by calls of at most [`BATCH_MESSAGES_MAX`], prints how many were settled, and fails if one was not.
pub(super) async fn by_id(
    context: &mut Context,
    ids: &[MessageId],
    verb: &'static str,
    settle: impl AsyncFn(Vec<Bytes>) -> Result<(u32, Vec<SettleFailure>), CliError>,
) -> Result<(), CliError> {
    let mut settled: u64 = 0;
    let mut failures = Vec::new();
    for chunk in ids.chunks(BATCH_MESSAGES_MAX) {
        let answer = settle(chunk.iter().map(|id| Bytes::copy_from_slice(&id.0)).collect()).await;
        let (chunk_settled, chunk_failures) = answer.inspect_err(|_| {
            if settled > 0 {
                note(format_args!(
                    "the first {settled} of {} messages were {verb}",
                    ids.len()
                ));
            }
        })?;
        settled += u64::from(chunk_settled);
        for failure in chunk_failures {
            let reason = reason(&failure);
            let Id(message_id) = Id::read(&failure.token)?;
            failures.push(Unsettled { message_id, reason });
        }
    }
    let shown = failures.iter().map(|failure| {
        let Unsettled { message_id, reason } = *failure;
        Failure {
            message_id: Id(message_id),
            reason,
        }
    });
    context.printer.print(&Settled {
        verb,
        settled,
        failures: shown.collect(),
    })?;
    match failures.is_empty() {
        true => Ok(()),
        false => Err(CliError::NotSettled(failures)),
    }
}

/// Messages by the tokens of their leases: a server that cannot settle one names the token.
#[derive(Debug, Default)]
pub(super) struct Tokens(HashMap<Bytes, MessageId>);

impl Tokens {
    pub(super) fn insert(&mut self, delivery: &Delivery) -> Result<(), CliError> {
        let Id(message_id) = Id::read(&delivery.message_id)?;
        self.0.insert(delivery.delivery_token.clone(), message_id);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn list(&self) -> Vec<Bytes> {
        self.0.keys().cloned().collect()
    }

    /// The messages of `failures`, which answer a settlement of these tokens.
    pub(super) fn unsettled(&self, failures: &[SettleFailure]) -> Result<Vec<Unsettled>, CliError> {
        let unsettled = failures.iter().map(|failure| match self.0.get(&failure.token) {
            Some(&message_id) => Ok(Unsettled {
                message_id,
                reason: reason(failure),
            }),
            None => Err(CliError::BadAnswer(
                "a token that was not sent could not be settled".to_owned(),
            )),
        });
        unsettled.collect()
    }
}

pub(super) fn reason(failure: &SettleFailure) -> &'static str {
    let name = failure.reason().as_str_name();
    name.strip_prefix("SETTLE_FAILURE_REASON_").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use boltq_proto::queue::v1::SettleFailureReason;

    use super::*;

    #[test]
    fn reasons_lose_the_prefix_that_every_enum_value_has() {
        let failure = |reason: SettleFailureReason| SettleFailure {
            token: Bytes::new(),
            reason: reason.into(),
        };
        assert_eq!(reason(&failure(SettleFailureReason::LeaseLost)), "LEASE_LOST");
        let from_the_future = SettleFailure {
            token: Bytes::new(),
            reason: 99,
        };
        assert_eq!(reason(&from_the_future), "UNSPECIFIED");
    }

    #[test]
    fn a_failure_names_the_message_of_its_token() {
        let mut tokens = Tokens::default();
        let delivery = Delivery {
            delivery_token: Bytes::from_static(b"t"),
            message_id: Bytes::from_static(&[7; 16]),
            ..Delivery::default()
        };
        tokens.insert(&delivery).unwrap();
        let failure = |token| SettleFailure {
            token: Bytes::from_static(token),
            reason: 2,
        };
        let expected = Unsettled {
            message_id: MessageId([7; 16]),
            reason: "NOT_FOUND",
        };
        assert_eq!(tokens.unsettled(&[failure(b"t")]).unwrap(), [expected]);
        assert!(tokens.unsettled(&[failure(b"u")]).is_err());
    }
}
