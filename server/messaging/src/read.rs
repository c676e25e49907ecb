//! Reading pages of a partition, from what this node has applied. Reading creates nothing.

use std::ops::Range;

use boltq_core::{Record, Seq, StreamId};
use boltq_log::{GroupLog, ReadMode};
use boltq_stream::{Terms, Version};
use bytes::Bytes;

use crate::error::StreamError;
use crate::group::StreamGroup;
use crate::proposing::Streams;

/// What a page is to be.
#[derive(Debug, Clone, Copy)]
pub struct ReadRequest<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: u32,
    /// Where it begins.
    pub start: Start<'a>,
    /// Records at most.
    pub records_max: usize,
    /// Bytes of records at most, but at least one.
    pub bytes_max: usize,
    /// Whether everything that was confirmed before has to be in it.
    pub linearizable: bool,
}

/// Where to begin to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<'a> {
    /// With the first record that is kept.
    Head,
    /// Behind the last one.
    End,
    /// With this one. If it is not kept any more, with the first that is.
    Seq(u64),
    /// With the first record whose timestamp is not before this one, in Unix nanoseconds.
    Time(u64),
    /// Where this reader wanted to go on; with the first record that is kept, if it never said so.
    Cursor {
        /// Its group.
        group: &'a str,
        /// Its name in it.
        member: &'a str,
    },
}

/// A page.
#[derive(Debug, Clone)]
pub struct Records {
    /// The first record that is kept.
    pub first: Seq,
    /// What the next record will get.
    pub end: Seq,
    /// Where to go on.
    pub next: Seq,
    /// Without a hole, up to `next`.
    pub records: Vec<ReadRecord>,
}

/// A record, or the place of one.
#[derive(Debug, Clone)]
pub struct ReadRecord {
    /// Its number.
    pub seq: Seq,
    /// `None`: it was taken away.
    pub content: Option<Content>,
}

/// What a record says.
#[derive(Debug, Clone)]
pub struct Content {
    /// Unix nanoseconds; in a partition, it never goes back.
    pub timestamp_ns: u64,
    /// The record.
    pub record: Record,
}

/// A partition as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct View {
    /// Which topic of the name it is.
    pub(crate) created: Version,
    /// None: it has never had a record.
    stream: Option<StreamId>,
    pub(crate) first: Seq,
    pub(crate) end: Seq,
}

impl Streams {
    /// Reads a page.
    ///
    /// # Errors
    /// There is no such topic or partition, or it cannot be read.
    pub async fn read(&self, request: ReadRequest<'_>) -> Result<Records, StreamError> {
        let (topic, partition) = (request.topic, request.partition);
        if request.linearizable {
            self.catch_up(self.home(topic)).await?;
            self.catch_up(self.slot(topic, partition)).await?;
        }
        let view = self.view(topic, partition)?;
        let view = view.ok_or_else(|| not_found(topic))?;
        let from = self.resolve(topic, partition, view, request.start).await?;
        self.page(
            (topic, partition),
            view.created,
            from,
            (request.records_max, request.bytes_max),
        )
        .await
    }

    /// What is known here of a partition; `None`: there is no such topic.
    pub(crate) fn view(&self, topic: &str, partition: u32) -> Result<Option<View>, StreamError> {
        let Some(terms) = self.terms(topic) else {
            return Ok(None);
        };
        let partitions = terms.settings.partitions;
        if partition >= partitions {
            let topic = topic.to_owned();
            return Err(StreamError::NoPartition {
                topic,
                partition,
                partitions,
            });
        }
        Ok(Some(self.slot(topic, partition).plane.look(|machine| {
            // Of another topic of the name it is none of ours.
            let own = machine.topic(topic).filter(|own| own.terms().created == terms.created);
            let partition = own.and_then(|own| own.partition(partition));
            View {
                created: terms.created,
                stream: partition.map(|partition| partition.stream()),
                first: partition.map_or(Seq::FIRST, |partition| partition.first_seq()),
                end: partition.map_or(Seq::FIRST, |partition| partition.next_seq()),
            }
        })))
    }

    pub(crate) fn terms(&self, topic: &str) -> Option<Terms> {
        let home = &self.home(topic).plane;
        home.look(|machine| machine.topic(topic).map(|topic| topic.terms()))
    }

    /// The sequence that a start means now.
    pub(crate) async fn resolve(
        &self,
        topic: &str,
        partition: u32,
        view: View,
        start: Start<'_>,
    ) -> Result<Seq, StreamError> {
        Ok(match start {
            Start::Head => view.first,
            Start::End => view.end,
            Start::Seq(seq) => Seq(seq.max(Seq::FIRST.0)),
            Start::Time(time_ns) => self.seq_at(topic, partition, view, time_ns).await?,
            Start::Cursor { group, member } => {
                let plane = &self.slot(topic, partition).plane;
                let position = view
                    .stream
                    .and_then(|stream| plane.look(|machine| machine.cursor(stream, group, member)));
                position.unwrap_or(view.first)
            }
        })
    }

    /// The first record that is not older: timestamps never go back, so a few have to be looked at.
    async fn seq_at(&self, topic: &str, partition: u32, view: View, time_ns: u64) -> Result<Seq, StreamError> {
        let plane = &self.slot(topic, partition).plane;
        let around = plane.look(|machine| {
            let partition = machine.topic(topic)?.partition(partition)?;
            Some(partition.around(time_ns))
        });
        let Some(Range { start, end }) = around else {
            return Ok(view.first);
        };
        let (mut low, mut high) = (start.0, end.0);
        while low < high {
            let middle = low + (high - low) / 2;
            // One without content says no time: the next one that has some decides.
            let bounds = (usize::try_from(high - middle).unwrap_or(usize::MAX).min(100), 1);
            let page = self.page((topic, partition), view.created, Seq(middle), bounds).await?;
            let with_content = page
                .records
                .iter()
                .find_map(|record| Some((record.seq.0, record.content.as_ref()?)));
            match with_content {
                Some((seq, content)) if content.timestamp_ns < time_ns => low = seq + 1,
                _ if page.first.0 > low => low = page.first.0,
                _ => high = middle,
            }
        }
        Ok(Seq(low))
    }

    /// Records from `from` on, or from the first that is kept, as long as the topic is the one that was created then.
    pub(crate) async fn page(
        &self,
        (topic, partition): (&str, u32),
        created: Version,
        from: Seq,
        (records_max, bytes_max): (usize, usize),
    ) -> Result<Records, StreamError> {
        let plane = &self.slot(topic, partition).plane;
        let mut before = None;
        loop {
            let view = self.view(topic, partition)?.filter(|view| view.created == created);
            let view = view.ok_or_else(|| not_found(topic))?;
            let Some(stream) = view.stream.filter(|_| from < view.end) else {
                return Ok(Records {
                    first: view.first,
                    end: view.end,
                    next: from.clamp(view.first, view.end),
                    records: Vec::new(),
                });
            };
            let start = from.max(view.first);
            let end = view.end.0.min(start.0.saturating_add(records_max as u64));
            let range = start.0..end;
            let places = places(plane, topic, partition, stream, range.clone());
            match read(plane.log(), &places, bytes_max).await {
                Ok(read) => {
                    let records = assemble(range, &places, &read)?;
                    let records = stamp(plane, topic, partition, stream, records);
                    return Ok(Records {
                        first: view.first,
                        end: view.end,
                        next: records.last().map_or(start, |last| last.seq.next()),
                        records,
                    });
                }
                // Removed meanwhile, or taken away.
                Err(_) if before.as_ref() != Some(&(view, places.clone())) => before = Some((view, places)),
                Err(error) => return Err(StreamError::Storage(error)),
            }
        }
    }
}

pub(crate) fn not_found(topic: &str) -> StreamError {
    StreamError::TopicNotFound {
        topic: topic.to_owned(),
    }
}

/// Places of a range whose records have their content.
fn places(
    plane: &StreamGroup,
    topic: &str,
    partition: u32,
    stream: StreamId,
    range: Range<u64>,
) -> Vec<(StreamId, Seq)> {
    let redacted: Vec<Range<Seq>> = plane.look(|machine| {
        let partition = machine.topic(topic).and_then(|topic| topic.partition(partition));
        let redacted = partition.map(|partition| partition.redacted(Seq(range.start)..Seq(range.end)).collect());
        redacted.unwrap_or_default()
    });
    let is_there = |seq: &Seq| !redacted.iter().any(|range| range.contains(seq));
    range.map(Seq).filter(is_there).map(|seq| (stream, seq)).collect()
}

/// Records at the first of these places, from memory if they are all there.
async fn read(log: &GroupLog, places: &[(StreamId, Seq)], bytes_max: usize) -> Result<Vec<Bytes>, String> {
    let read = move |log: &GroupLog, places: &[(StreamId, Seq)], mode| {
        let mut out = Vec::new();
        let read = log.read_first(places, bytes_max, mode, &mut out);
        read.map(|whole| whole.then_some(out))
            .map_err(|error| error.to_string())
    };
    if places.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(cached) = read(log, places, ReadMode::Cached)? {
        return Ok(cached);
    }
    let (log, places) = (log.clone(), places.to_vec());
    let read = tokio::task::spawn_blocking(move || read(&log, &places, ReadMode::Disk)).await;
    read.map_err(|error| error.to_string())?.map(Option::unwrap_or_default)
}

/// Puts places without content between those that were read, up to the first that was not.
fn assemble(range: Range<u64>, places: &[(StreamId, Seq)], read: &[Bytes]) -> Result<Vec<ReadRecord>, StreamError> {
    let end = places.get(read.len()).map_or(range.end, |(_, seq)| seq.0);
    let mut found = places.iter().zip(read).peekable();
    let mut records = Vec::with_capacity(usize::try_from(end - range.start).unwrap_or_default());
    for seq in range.start..end {
        let content = match found.next_if(|((_, place), _)| place.0 == seq) {
            None => None,
            Some((_, bytes)) => {
                let record = Record::read(bytes).map_err(|error| StreamError::Storage(error.to_string()))?;
                Some(Content {
                    timestamp_ns: record.published_ns,
                    record,
                })
            }
        };
        records.push(ReadRecord { seq: Seq(seq), content });
    }
    Ok(records)
}

/// Gives records the timestamps that appenders were told.
fn stamp(
    plane: &StreamGroup,
    topic: &str,
    partition: u32,
    stream: StreamId,
    mut records: Vec<ReadRecord>,
) -> Vec<ReadRecord> {
    plane.look(|machine| {
        let partition = machine.topic(topic).and_then(|topic| topic.partition(partition));
        let Some(partition) = partition.filter(|partition| partition.stream() == stream) else {
            return;
        };
        for record in &mut records {
            if let Some(content) = &mut record.content {
                content.timestamp_ns = partition.timestamp_ns(record.seq, content.timestamp_ns);
            }
        }
    });
    records
}
