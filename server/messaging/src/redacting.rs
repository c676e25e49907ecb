//! Taking the content of single records away, for ever.

use boltq_core::check_name;
use boltq_raft::Proposal;
use boltq_stream::Outcome;
use boltq_stream::command::{self, Target};

use crate::error::StreamError;
use crate::proposing::{Kind, Streams};
use crate::read::not_found;

impl Streams {
    /// Takes the content of a record away. Its place stays, and its number. When this returns, nobody is given it any more by a node that
    /// has applied as much; its bytes go from the files of each node after that, as soon as compaction has rewritten them. Returns
    /// whether it had its content until now.
    ///
    /// # Errors
    /// There is no such topic, partition or record.
    pub async fn redact(&self, topic: &str, partition: u32, seq: u64) -> Result<bool, StreamError> {
        check_name(topic)?;
        self.catch_up(self.home(topic)).await?;
        let view = self.view(topic, partition)?.ok_or_else(|| not_found(topic))?;
        let target = Target {
            topic,
            created: view.created,
        };
        let mut proposal = Proposal::new();
        command::redact(proposal.begin(), target, partition, seq);
        let outcomes = self
            .propose(self.slot(topic, partition), proposal, Kind::Keeping)
            .await?;
        match outcomes.first() {
            Some(Outcome::Redacted(had_content)) => Ok(*had_content),
            Some(Outcome::NoTopic | Outcome::NoRecord) => Err(StreamError::RecordNotFound {
                topic: topic.to_owned(),
                partition,
                seq,
            }),
            _ => Err(StreamError::Stopped),
        }
    }
}
