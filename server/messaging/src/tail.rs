//! Tailing: pages of some partitions as they come, from what this node has applied.
//!
//! A tail is told once by each entry that brings something, and then looks. It never waits for a partition while another one has
//! records, and takes them in turn. What it was not told it sees as a gap; what it was told comes once.

use std::sync::Arc;

use boltq_core::{Seq, check_name};
use boltq_stream::Version;
use tokio::sync::Notify;

use crate::error::StreamError;
use crate::proposing::Streams;
use crate::read::{Records, Start};
use crate::readers::Registration;

/// Who registers with this is told of the topic only.
const NO_PARTITION: u32 = u32::MAX;

/// A partition that is to be tailed.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The topic, which need not exist yet.
    pub topic: &'a str,
    /// The partition.
    pub partition: u32,
    /// Where to begin. Of a topic that does not exist yet, all records are wanted, or those from the sequence on.
    pub start: Start<'a>,
}

/// What a tail tells. Sources are numbered from 0, in their order.
#[derive(Debug)]
pub enum Event {
    /// Where a source begins; the first that is told of each.
    Began {
        /// Which.
        source: usize,
        /// Whether the topic exists.
        exists: bool,
        /// The first record that is kept.
        first: Seq,
        /// What is told next.
        next: Seq,
        /// What the next record will get: until `next` is there, everything is old.
        end: Seq,
    },
    /// Records.
    Records {
        /// Of which source.
        source: usize,
        /// At least one.
        records: Records,
    },
    /// Records that were wanted are not kept any more.
    Gap {
        /// Of which source.
        source: usize,
        /// The first of them.
        from: Seq,
        /// The first that is kept.
        to: Seq,
    },
    /// The topic was deleted. No more comes of this source.
    Ended {
        /// Which.
        source: usize,
    },
}

/// See the module.
pub struct Tail {
    streams: Streams,
    woken: Arc<Notify>,
    sources: Vec<Reading>,
    /// Who is looked at first.
    turn: usize,
}

struct Reading {
    topic: String,
    partition: u32,
    begin: Begin,
    /// What is told next, once it is known.
    next: Option<Seq>,
    /// Which topic of the name it is, once there is one.
    created: Option<Version>,
    /// With the partition, and with the home of the topic, which says that it was created or deleted. None: it is over.
    registration: Option<(Registration, Registration)>,
}

/// A [`Start`] that lasts.
enum Begin {
    Head,
    End,
    Seq(u64),
    Time(u64),
    Cursor(String, String),
}

impl From<Start<'_>> for Begin {
    fn from(start: Start<'_>) -> Self {
        match start {
            Start::Head => Self::Head,
            Start::End => Self::End,
            Start::Seq(seq) => Self::Seq(seq),
            Start::Time(time) => Self::Time(time),
            Start::Cursor { group, member } => Self::Cursor(group.to_owned(), member.to_owned()),
        }
    }
}

impl Begin {
    fn start(&self) -> Start<'_> {
        match self {
            Self::Head => Start::Head,
            Self::End => Start::End,
            Self::Seq(seq) => Start::Seq(*seq),
            Self::Time(time) => Start::Time(*time),
            Self::Cursor(group, member) => Start::Cursor { group, member },
        }
    }

    /// Where it is in a topic that does not exist: the next record is the first one.
    fn before_all(&self) -> Seq {
        match self {
            Self::Seq(seq) => Seq((*seq).max(Seq::FIRST.0)),
            _ => Seq::FIRST,
        }
    }
}

impl Streams {
    /// Begins to tail.
    ///
    /// # Errors
    /// There are no sources, or one is no name or no partition of its topic.
    pub fn tail(&self, sources: &[Source<'_>]) -> Result<Tail, StreamError> {
        if sources.is_empty() {
            return Err(StreamError::InvalidArgument(
                "there are no sources; name at least one topic".to_owned(),
            ));
        }
        let woken = Arc::new(Notify::new());
        let reading = |source: &Source<'_>| {
            check_name(source.topic)?;
            // Before the first look, which is the one that counts.
            let readers = &self.slot(source.topic, source.partition).plane.readers;
            let home = &self.home(source.topic).plane.readers;
            let registration = (
                readers.register(source.topic, source.partition, woken.clone()),
                home.register(source.topic, NO_PARTITION, woken.clone()),
            );
            self.view(source.topic, source.partition)?;
            Ok(Reading {
                topic: source.topic.to_owned(),
                partition: source.partition,
                begin: source.start.into(),
                next: None,
                created: None,
                registration: Some(registration),
            })
        };
        let sources = sources.iter().map(reading).collect::<Result<_, StreamError>>()?;
        Ok(Tail {
            streams: self.clone(),
            woken,
            sources,
            turn: 0,
        })
    }
}

impl Tail {
    /// Waits for what comes next: records within these bounds, at least one. `None`: all sources are over. What was not
    /// returned because the caller went away comes with the next call.
    ///
    /// # Errors
    /// A record cannot be read, or the node stops.
    pub async fn next(&mut self, bounds: (usize, usize)) -> Result<Option<Event>, StreamError> {
        loop {
            if self.sources.iter().all(|source| source.registration.is_none()) {
                return Ok(None);
            }
            for offset in 0..self.sources.len() {
                let source = (self.turn + offset) % self.sources.len();
                if let Some(event) = self.look(source, bounds).await? {
                    self.turn = source + 1;
                    return Ok(Some(event));
                }
            }
            let stop = self.streams.inner.stop.clone();
            tokio::select! {
                biased;
                () = self.woken.notified() => {}
                () = stop.cancelled() => return Err(StreamError::Stopped),
            }
        }
    }

    /// What there is to tell of a source now.
    async fn look(&mut self, source: usize, bounds: (usize, usize)) -> Result<Option<Event>, StreamError> {
        let Some(reading) = self
            .sources
            .get_mut(source)
            .filter(|reading| reading.registration.is_some())
        else {
            return Ok(None);
        };
        let (topic, partition) = (reading.topic.as_str(), reading.partition);
        let view = match self.streams.view(topic, partition) {
            // Created with fewer partitions than were hoped for.
            Err(StreamError::NoPartition { .. }) => None,
            view => view?,
        };
        let is_another = |created: Version| view.is_none_or(|view| view.created != created);
        if reading.created.is_some_and(is_another) {
            reading.registration = None;
            return Ok(Some(Event::Ended { source }));
        }
        reading.created = view.map(|view| view.created);
        let (first, end) = view.map_or((Seq::FIRST, Seq::FIRST), |view| (view.first, view.end));
        let Some(next) = reading.next else {
            let next = match view {
                Some(view) => {
                    self.streams
                        .resolve(topic, partition, view, reading.begin.start())
                        .await?
                }
                None => reading.begin.before_all(),
            };
            reading.next = Some(next);
            return Ok(Some(Event::Began {
                source,
                exists: view.is_some(),
                first,
                next,
                end,
            }));
        };
        if next < first {
            reading.next = Some(first);
            return Ok(Some(Event::Gap {
                source,
                from: next,
                to: first,
            }));
        }
        if next >= end {
            return Ok(None);
        }
        let created = reading.created.unwrap_or(Version::NONE);
        let records = match self.streams.page((topic, partition), created, next, bounds).await {
            Ok(records) => records,
            // Deleted meanwhile.
            Err(StreamError::TopicNotFound { .. } | StreamError::NoPartition { .. }) => {
                reading.registration = None;
                return Ok(Some(Event::Ended { source }));
            }
            Err(error) => return Err(error),
        };
        // Removed meanwhile: the next look tells.
        if records.records.first().is_none_or(|record| record.seq != next) {
            self.woken.notify_one();
            return Ok(None);
        }
        reading.next = Some(records.next);
        Ok(Some(Event::Records { source, records }))
    }
}
