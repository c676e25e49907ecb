//! Topics: creating, changing, deleting, and what there is.

use boltq_core::{Millis, Seq, check_name};
use boltq_raft::Proposal;
use boltq_stream::command::{self, Target};
use boltq_stream::{Outcome, PARTITIONS_MAX, Retention, Settings as TopicSettings, Terms, group_of};
use futures_util::future::join_all;

use crate::error::StreamError;
use crate::proposing::{Kind, Streams};
use crate::read::not_found;

/// A topic.
#[derive(Debug, Clone)]
pub struct TopicInfo {
    /// Its name.
    pub name: String,
    /// What it is.
    pub settings: TopicSettings,
    /// When it was created.
    pub created: Millis,
    /// One for each partition, those included that have never had a record.
    pub partitions: Vec<PartitionInfo>,
}

/// A partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Its number.
    pub partition: u32,
    /// The first record that is kept.
    pub first: Seq,
    /// What the next record will get.
    pub end: Seq,
    /// Bytes of its records.
    pub bytes: u64,
    /// Unix nanoseconds of the last record that there ever was; 0: there was none.
    pub last_timestamp_ns: u64,
}

impl Streams {
    /// Creates a topic, or finds that there is one with as many partitions. Returns whether it is new. What is not given is as
    /// the configuration says.
    ///
    /// # Errors
    /// There is one with another number of partitions.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: Option<u32>,
        retention: Option<Retention>,
    ) -> Result<(TopicInfo, bool), StreamError> {
        check_name(name)?;
        let defaults = self.default_settings();
        let settings = TopicSettings {
            partitions: partitions.unwrap_or(defaults.partitions),
            retention: retention.unwrap_or(defaults.retention),
        };
        if !(1..=PARTITIONS_MAX).contains(&settings.partitions) {
            return Err(StreamError::InvalidArgument(format!(
                "{} partitions; 1 to {PARTITIONS_MAX} are allowed",
                settings.partitions
            )));
        }
        let mut proposal = Proposal::new();
        command::create(proposal.begin(), name, &settings);
        match self.propose(self.home(name), proposal, Kind::Storing).await?.first() {
            Some(Outcome::Topic { new, terms }) => {
                if partitions.is_some_and(|wanted| wanted != terms.settings.partitions) {
                    return Err(StreamError::TopicExists {
                        topic: name.to_owned(),
                        partitions: terms.settings.partitions,
                    });
                }
                Ok((self.info(name, terms), *new))
            }
            _ => Err(StreamError::Stopped),
        }
    }

    /// Changes how long the records of a topic are kept.
    ///
    /// # Errors
    /// There is no such topic.
    pub async fn update_topic(&self, name: &str, retention: Retention) -> Result<TopicInfo, StreamError> {
        check_name(name)?;
        let mut proposal = Proposal::new();
        command::update(proposal.begin(), any(name), retention);
        match self.propose(self.home(name), proposal, Kind::Keeping).await?.first() {
            Some(Outcome::Topic { terms, .. }) => Ok(self.info(name, terms)),
            Some(Outcome::NoTopic) => Err(not_found(name)),
            _ => Err(StreamError::Stopped),
        }
    }

    /// Deletes a topic with its records and positions. Once its home has done it, there is no such topic; what is left of it in
    /// other groups goes now if it can, and otherwise when their leaders look.
    ///
    /// # Errors
    /// There is no such topic.
    pub async fn delete_topic(&self, name: &str) -> Result<(), StreamError> {
        check_name(name)?;
        let home = self.home(name);
        self.catch_up(home).await?;
        let terms = self.terms(name).ok_or_else(|| not_found(name))?;
        let target = Target {
            topic: name,
            created: terms.created,
        };
        let delete = async |slot| {
            let mut proposal = Proposal::new();
            command::delete(proposal.begin(), target);
            self.propose(slot, proposal, Kind::Keeping).await
        };
        match delete(home).await?.first() {
            Some(Outcome::Deleted(_)) => {}
            Some(Outcome::NoTopic) => return Err(not_found(name)),
            _ => return Err(StreamError::Stopped),
        }
        let others = terms.settings.partitions.min(self.groups());
        let rest = (1..others).map(|partition| delete(self.slot(name, partition)));
        for outcome in join_all(rest).await {
            if let Err(error) = outcome {
                tracing::debug!(topic = name, %error, "what a deleted topic has in another group goes later");
            }
        }
        Ok(())
    }

    /// What a topic is, and has.
    ///
    /// # Errors
    /// There is no such topic.
    pub async fn topic(&self, name: &str, linearizable: bool) -> Result<TopicInfo, StreamError> {
        if linearizable {
            self.catch_up(self.home(name)).await?;
        }
        let terms = self.terms(name).ok_or_else(|| not_found(name))?;
        Ok(self.info(name, &terms))
    }

    /// Topics behind the one of that name, in the byte order of their names, up to `max`, and whether there are more.
    #[must_use]
    pub fn topics(&self, after: Option<&str>, max: usize) -> (Vec<TopicInfo>, bool) {
        let mut names: Vec<(String, Terms)> = Vec::new();
        for (number, slot) in (0..).zip(&self.inner.slots) {
            slot.plane.look(|machine| {
                let own = machine
                    .topics_after(after)
                    .filter(|(name, _)| group_of(name, 0, self.groups()) == number);
                names.extend(own.take(max + 1).map(|(name, topic)| (name.to_owned(), topic.terms())));
            });
        }
        names.sort_unstable_by(|left, right| left.0.cmp(&right.0));
        let more = names.len() > max;
        names.truncate(max);
        (names.iter().map(|(name, terms)| self.info(name, terms)).collect(), more)
    }

    /// What its partitions have, as far as this node has applied.
    fn info(&self, name: &str, terms: &Terms) -> TopicInfo {
        let partition = |partition| {
            let plane = &self.slot(name, partition).plane;
            plane.look(|machine| {
                let own = machine.topic(name).filter(|own| own.terms().created == terms.created);
                let own = own.and_then(|own| own.partition(partition));
                PartitionInfo {
                    partition,
                    first: own.map_or(Seq::FIRST, |own| own.first_seq()),
                    end: own.map_or(Seq::FIRST, |own| own.next_seq()),
                    bytes: own.map_or(0, |own| own.bytes()),
                    last_timestamp_ns: own.map_or(0, |own| own.last_timestamp_ns()),
                }
            })
        };
        TopicInfo {
            name: name.to_owned(),
            settings: terms.settings,
            created: terms.created.time(),
            partitions: (0..terms.settings.partitions).map(partition).collect(),
        }
    }
}

/// Whichever topic of the name there is.
fn any(topic: &str) -> Target<'_> {
    Target {
        topic,
        created: boltq_stream::Version::NONE,
    }
}
