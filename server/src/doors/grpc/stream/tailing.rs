//! A tail on its way to its client.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_messaging::{Event, Source, Streams, Tail};
use boltq_proto::stream::v1::tail_response::Event as EventProto;
use boltq_proto::stream::v1::{TailBegan, TailEnded, TailGap, TailProgress, TailRequest, TailResponse};
use futures_util::{Stream, stream};
use prost::Message;
use tonic::Status;

use super::super::convert::{bounded, count};
use super::super::error::invalid;
use super::convert;
use super::error::status;
use crate::doors::bounds::PAGE_DEFAULT;
use crate::doors::intake::{Hold, Reader, StreamRoom};

/// Partitions of one tail.
const SOURCES_MAX: usize = 1_000;
/// Records of one response, in bytes: so much is in memory for each tail whose client does not read.
const RESPONSE_BYTES_MAX: usize = 256 << 10;
const PROGRESS_MIN: Duration = Duration::from_secs(1);
const PROGRESS_MAX: Duration = Duration::from_secs(3_600);

pub(super) struct Tailing {
    tail: Tail,
    records_max: usize,
    progress: Option<Duration>,
    /// What each source is told next.
    next: Vec<Option<u64>>,
    /// Progress that was not told yet.
    due: Vec<TailResponse>,
    reader: Option<Arc<Reader>>,
    room: StreamRoom,
    /// Room of the last response: it has left when the next one is asked for.
    held: Option<Hold>,
    ended: bool,
}

impl Tailing {
    pub(super) fn new(streams: &Streams, request: &TailRequest, reader: Option<Arc<Reader>>) -> Result<Self, Status> {
        let given = request.sources.len();
        if given > SOURCES_MAX {
            return Err(invalid(format!("{given} sources; 1 to {SOURCES_MAX} are allowed")));
        }
        let sources = request.sources.iter().map(|source| {
            Ok(Source {
                topic: &source.topic,
                partition: source.partition,
                start: convert::start(source.start.as_ref())?,
            })
        });
        let sources = sources.collect::<Result<Vec<_>, Status>>()?;
        let progress = request
            .progress_interval
            .filter(|interval| *interval != prost_types::Duration::default());
        Ok(Self {
            tail: streams.tail(&sources).map_err(|error| status(&error))?,
            records_max: count(request.max_records, "max_records", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?,
            progress: bounded(progress, "progress_interval", PROGRESS_MIN, PROGRESS_MAX)?,
            next: vec![None; given],
            due: Vec::new(),
            reader,
            room: StreamRoom::new(),
            held: None,
            ended: false,
        })
    }

    /// What the client is told.
    pub(super) fn responses(self) -> impl Stream<Item = Result<TailResponse, Status>> + Send {
        stream::unfold(self, |mut tailing| async move {
            let next = tailing.next().await?;
            tailing.ended = next.is_err();
            Some((next, tailing))
        })
    }

    async fn next(&mut self) -> Option<Result<TailResponse, Status>> {
        self.held = None;
        if self.ended {
            return None;
        }
        if let Some(progress) = self.due.pop() {
            return Some(Ok(progress));
        }
        let bounds = (self.records_max, RESPONSE_BYTES_MAX);
        let event = loop {
            let Some(interval) = self.progress else {
                break self.tail.next(bounds).await;
            };
            if let Ok(event) = tokio::time::timeout(interval, self.tail.next(bounds)).await {
                break event;
            }
            self.due = self.tell_progress();
            if let Some(progress) = self.due.pop() {
                return Some(Ok(progress));
            }
        };
        let response = match event {
            Ok(event) => self.response(event?),
            Err(error) => return Some(Err(status(&error))),
        };
        if let Some(reader) = &self.reader {
            self.held = Some(reader.hold(response.encoded_len(), Some(&self.room)).await);
        }
        Some(Ok(response))
    }

    /// Where all sources are that have begun and are not over, the first one last.
    fn tell_progress(&self) -> Vec<TailResponse> {
        let next = self.next.iter().enumerate().rev();
        next.filter_map(|(source, next)| {
            let progress = TailProgress { next_seq: (*next)? };
            Some(response(source, EventProto::Progress(progress)))
        })
        .collect()
    }

    fn response(&mut self, event: Event) -> TailResponse {
        let (source, next, event) = match event {
            Event::Began {
                source,
                exists,
                first,
                next,
                end,
            } => {
                let began = TailBegan {
                    exists,
                    next_seq: next.0,
                    first_seq: first.0,
                    end_seq: end.0,
                };
                (source, Some(next.0), EventProto::Began(began))
            }
            Event::Records { source, records } => {
                let next = records.next.0;
                (source, Some(next), EventProto::Records(convert::records(records)))
            }
            Event::Gap { source, from, to } => {
                let gap = TailGap {
                    from_seq: from.0,
                    to_seq: to.0,
                };
                (source, Some(to.0), EventProto::Gap(gap))
            }
            Event::Ended { source } => (source, None, EventProto::Ended(TailEnded {})),
        };
        if let Some(known) = self.next.get_mut(source) {
            *known = next;
        }
        response(source, event)
    }
}

fn response(source: usize, event: EventProto) -> TailResponse {
    TailResponse {
        source: u32::try_from(source).unwrap_or(u32::MAX),
        event: Some(event),
    }
}
