//! The groups that are to carry the messaging plane.
//!
//! They elect leaders, replicate and take checkpoints like the others. This version has no commands for them.

use boltq_core::{DecodeError, Term};
use boltq_log::EntryId;
use boltq_raft::{ApplyError, Captured, Commands, GroupHandler};

const FORMAT: u8 = 1;

/// The state of a group without commands.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamPlane;

impl GroupHandler for StreamPlane {
    type Outcome = ();

    fn apply(&self, _entry: EntryId, commands: Commands<'_>) -> Result<Vec<()>, ApplyError> {
        match commands.count() {
            0 => Ok(Vec::new()),
            // From a version that knows what they mean.
            count => Err(DecodeError::Unknown {
                what: "commands of a group of the messaging plane",
                value: count as u64,
            }
            .into()),
        }
    }

    fn share(_outcome: &mut (), _items: u32) {}

    fn capture(&self) -> Captured {
        Box::new(|| vec![FORMAT])
    }

    fn restore(&self, state: &[u8]) -> Result<(), DecodeError> {
        match state {
            [FORMAT] => Ok(()),
            _ => Err(DecodeError::Invalid {
                what: "state of a group of the messaging plane",
                why: "it is not that of this version",
            }),
        }
    }

    fn leadership(&self, _leading: Option<Term>) {}
}
