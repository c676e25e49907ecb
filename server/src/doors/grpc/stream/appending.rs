//! The reading half of a stream of appends.

use std::future::Future;

use boltq_messaging::{NewRecord, Prepared, StreamError, Streams};
use boltq_proto::stream::v1::{AppendStreamRequest, AppendStreamResponse};
use futures_util::{Stream, StreamExt, stream};
use tonic::{Status, Streaming};

use super::super::error::invalid;
use super::error::status;
use super::{batch_response, convert};

pub(super) struct Appending {
    streams: Streams,
    requests: Streaming<AppendStreamRequest>,
    /// What the last request named.
    topic: String,
    /// Number of the last request.
    batch: u64,
    ended: bool,
}

/// A request whose records are on their way, or refused.
struct Batch {
    request: AppendStreamRequest,
    topic: String,
    number: u64,
    /// Records that were refused here: their positions, rising, and why.
    refused: Vec<(usize, StreamError)>,
    /// None: all of its records were.
    prepared: Option<Prepared>,
}

impl Appending {
    pub(super) fn new(streams: Streams, requests: Streaming<AppendStreamRequest>) -> Self {
        Self {
            streams,
            requests,
            topic: String::new(),
            batch: 0,
            ended: false,
        }
    }

    /// Its batches, in the order in which they came. They are stored in that order: each has its place before the next one is read.
    pub(super) fn batches(self) -> impl Stream<Item = impl Future<Output = Result<AppendStreamResponse, Status>>> {
        stream::unfold(self, |mut appending| async move {
            let next = appending.next().await?;
            Some((async move { Ok(next?.append().await) }, appending))
        })
    }

    async fn next(&mut self) -> Option<Result<Batch, Status>> {
        if self.ended {
            return None;
        }
        let read = tokio::select! {
            biased;
            () = self.streams.stopping() => Some(Err(status(&StreamError::Stopped))),
            request = self.requests.next() => request,
        };
        let batch = match read? {
            Ok(request) => self.batch(request).await,
            Err(status) => Err(status),
        };
        self.ended = batch.is_err();
        Some(batch)
    }

    async fn batch(&mut self, mut request: AppendStreamRequest) -> Result<Batch, Status> {
        if !request.topic.is_empty() {
            self.topic = std::mem::take(&mut request.topic);
        }
        let (records, topics) = (request.records.len(), request.topics.len());
        if topics != 0 && topics != records {
            return Err(invalid(format!(
                "{topics} topics for {records} records; give none, or one for each record"
            )));
        }
        self.batch += 1;
        let mut batch = Batch {
            request,
            topic: self.topic.clone(),
            number: self.batch,
            refused: Vec::new(),
            prepared: None,
        };
        let (mut good, mut refused) = (Vec::with_capacity(records), Vec::new());
        for (index, record) in batch.records().enumerate() {
            match record {
                Ok(record) => good.push(record),
                Err(error) => refused.push((index, error)),
            }
        }
        if !good.is_empty() || records == 0 {
            let prepared = self.streams.prepare(&good).await;
            batch.prepared = Some(prepared.map_err(|error| status(&error))?);
        }
        batch.refused = refused;
        Ok(batch)
    }
}

impl Batch {
    /// The records, or why they are refused.
    fn records(&self) -> impl Iterator<Item = Result<NewRecord<'_>, StreamError>> {
        let topic_of = |index: usize| {
            let own = self.request.topics.get(index).filter(|topic| !topic.is_empty());
            own.map_or(self.topic.as_str(), String::as_str)
        };
        let records = self.request.records.iter().enumerate();
        records.map(move |(index, record)| convert::new_record(topic_of(index), record))
    }

    async fn append(mut self) -> AppendStreamResponse {
        let prepared = self.prepared.take();
        let mut results = match prepared {
            Some(prepared) => prepared.finish(|| self.records().flatten().collect()).await,
            None => Vec::new(),
        };
        for (index, error) in self.refused {
            // Rising, so that each finds those before it in their places.
            results.insert(index.min(results.len()), Err(error));
        }
        batch_response(self.number, results)
    }
}
