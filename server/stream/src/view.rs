//! Reading the state. Nothing in here changes or creates anything.

use std::ops::Range;

use boltq_core::{Millis, Seq, StreamId};

use crate::machine::Machine;
use crate::outcome::Totals;
use crate::partition::Partition;
use crate::settings::Terms;
use crate::topics::Topic;

/// A topic, as far as it is in this group.
#[derive(Debug, Clone, Copy)]
pub struct TopicView<'a>(&'a Topic);

impl<'a> TopicView<'a> {
    /// What it is.
    #[must_use]
    pub fn terms(self) -> Terms {
        self.0.terms()
    }

    /// One of its partitions, if it has anything here.
    #[must_use]
    pub fn partition(self, number: u32) -> Option<PartitionView<'a>> {
        self.0.partitions.get(number).map(PartitionView)
    }

    /// Those that have anything here, in the order of their numbers.
    pub fn partitions(self) -> impl Iterator<Item = PartitionView<'a>> {
        self.0.partitions.iter().map(PartitionView)
    }
}

/// A partition of a topic.
#[derive(Debug, Clone, Copy)]
pub struct PartitionView<'a>(&'a Partition);

impl<'a> PartitionView<'a> {
    /// Its number in its topic.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0.number
    }

    /// The stream that its records are in.
    #[must_use]
    pub fn stream(self) -> StreamId {
        self.0.stream()
    }

    /// The first record that there is; [`PartitionView::next_seq`] if there is none. What is before it is a gap.
    #[must_use]
    pub fn first_seq(self) -> Seq {
        Seq(self.0.first_seq())
    }

    /// What the next record gets.
    #[must_use]
    pub fn next_seq(self) -> Seq {
        Seq(self.0.next_seq())
    }

    /// Bytes of its records as they were appended, those included whose content is gone.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.0.total_bytes()
    }

    /// Unix nanoseconds of the last record that there ever was; 0: there was none.
    #[must_use]
    pub fn last_timestamp_ns(self) -> u64 {
        self.0.last_ns
    }

    /// The timestamp of a record of which [`boltq_core::RecordHead::published_ns`] is `stamp_ns`: that, or the timestamp of the record
    /// before it if that is higher.
    #[must_use]
    pub fn timestamp_ns(self, seq: Seq, stamp_ns: u64) -> u64 {
        self.0.timestamp_ns(seq.0, stamp_ns)
    }

    /// Where the first record is whose timestamp is not before `time_ns`: one of these or, if none of them is it, the end of the
    /// range. So few records have to be looked at, and none if it is empty. One without content says no time: the next one decides.
    #[must_use]
    pub fn around(self, time_ns: u64) -> Range<Seq> {
        let around = self.0.around(time_ns);
        Seq(around.start)..Seq(around.end)
    }

    /// Whether the content of a record was taken away.
    #[must_use]
    pub fn is_redacted(self, seq: Seq) -> bool {
        self.0.redacted().is_some_and(|redacted| redacted.contains(seq.0))
    }

    /// Records within `range` whose content was taken away, as ranges.
    pub fn redacted(self, range: Range<Seq>) -> impl Iterator<Item = Range<Seq>> {
        let redacted = self.0.redacted().into_iter();
        let within = redacted.flat_map(move |redacted| redacted.within(range.start.0..range.end.0));
        within.map(|part| Seq(part.start)..Seq(part.end))
    }
}

/// A part of the topics, looked through for what retention does not keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overdue<'a> {
    /// Topics that have such records.
    pub topics: Vec<&'a str>,
    /// Where to go on after; `None`: those were all.
    pub last: Option<&'a str>,
}

impl Machine {
    /// The highest time that an entry carried.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// Figures over all topics.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Topics that have anything in this group.
    #[must_use]
    pub fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// Records that there are.
    #[must_use]
    pub fn record_count(&self) -> u64 {
        let Totals {
            appended,
            trimmed,
            deleted,
            ..
        } = self.totals;
        appended - trimmed - deleted
    }

    /// Positions that are kept, those included of topics that were deleted just now.
    #[must_use]
    pub fn cursor_count(&self) -> usize {
        self.cursors.len()
    }

    /// Keys of appends that are remembered, those included whose time is over and that take memory still.
    #[must_use]
    pub fn claim_count(&self) -> usize {
        self.claims.len()
    }

    /// The topic of that name, if it has anything in this group.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicView<'_>> {
        self.topics.get(name).map(TopicView)
    }

    /// Topics in the byte order of their names, those behind `name`.
    pub fn topics_after(&self, name: Option<&str>) -> impl Iterator<Item = (&str, TopicView<'_>)> {
        self.topics.after(name).map(|(name, topic)| (name, TopicView(topic)))
    }

    /// The sequence that a reader wants next, if it ever said so.
    #[must_use]
    pub fn cursor(&self, stream: StreamId, group: &str, member: &str) -> Option<Seq> {
        self.cursors.get(stream, group, member).map(Seq)
    }

    /// Group, member and position of the readers of a stream, those behind a group and a member. Groups with shorter names come first,
    /// then it is byte order.
    pub fn cursors_after(
        &self,
        stream: StreamId,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = (&str, &str, Seq)> {
        let cursors = self.cursors.of_stream(stream, after);
        cursors.map(|(group, member, position)| (group, member, Seq(position)))
    }

    /// Members of a group that read a stream, in byte order, with their positions: those behind `after`.
    pub fn members(&self, stream: StreamId, group: &str, after: Option<&str>) -> impl Iterator<Item = (&str, Seq)> {
        let members = self.cursors.members(stream, group, after);
        members.map(|(member, position)| (member, Seq(position)))
    }

    /// Looks at up to `look_max` topics behind the one of that name for records that retention does not keep at `now`. What a leader
    /// does again and again, a part at a time, to propose [`crate::command::trim`].
    #[must_use]
    pub fn overdue(&self, after: Option<&str>, look_max: usize, now: Millis) -> Overdue<'_> {
        let mut topics = Vec::new();
        let mut last = None;
        for (looked, (name, topic)) in self.topics.after(after).enumerate() {
            if looked == look_max {
                return Overdue { topics, last };
            }
            let retention = topic.settings.retention;
            if topic
                .partitions
                .iter()
                .any(|partition| partition.is_over(retention, now))
            {
                topics.push(name);
            }
            last = Some(name);
        }
        Overdue { topics, last: None }
    }
}
