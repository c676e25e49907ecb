//! `boltq.stream.v1.StreamService`.

mod appending;
mod convert;
mod error;
mod tailing;

use std::pin::Pin;

use boltq_core::limits::BATCH_MESSAGES_MAX;
use boltq_messaging::{Appended, NewCursor, ReadRequest as Page, StreamError, Streams};
use boltq_proto::stream::v1::stream_service_server::StreamService;
use boltq_proto::stream::v1::{
    AppendFailure, AppendRequest, AppendResponse, AppendStreamRequest, AppendStreamResponse, CommitCursorRequest,
    CommitCursorResponse, CommittedCursor, CreateTopicRequest, CreateTopicResponse, Cursor, DeleteCursorsRequest,
    DeleteCursorsResponse, DeleteTopicRequest, DeleteTopicResponse, GetCursorsRequest, GetCursorsResponse,
    GetTopicRequest, GetTopicResponse, ListTopicsRequest, ListTopicsResponse, ReadRequest, ReadResponse, Reader,
    TailRequest, TailResponse, UpdateTopicRequest, UpdateTopicResponse,
};
use futures_util::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

use self::appending::Appending;
use self::error::OrStatus;
use self::tailing::Tailing;
use super::error::invalid;
use super::queue::{self, held};
use crate::doors::bounds::PAGE_DEFAULT;
use crate::service::ANSWER_BYTES_MAX;

/// Batches of one stream of appends that may be on their way at once.
const BATCHES_IN_FLIGHT_MAX: usize = 64;
/// Between the names of a position in a page token: names of groups cannot hold it there, as it is followed by a length.
const TOKEN_SEPARATOR: char = '/';

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

pub(super) struct StreamDoor {
    streams: Streams,
}

impl StreamDoor {
    pub(super) fn new(streams: Streams) -> Self {
        Self { streams }
    }
}

#[tonic::async_trait]
impl StreamService for StreamDoor {
    async fn append(&self, request: Request<AppendRequest>) -> Result<Response<AppendResponse>, Status> {
        let request = request.into_inner();
        let records = request
            .records
            .iter()
            .map(|record| convert::new_record(&request.topic, record));
        let records = records.collect::<Result<Vec<_>, StreamError>>().or_status()?;
        let appended = self.streams.append(&records).await.or_status()?;
        let positions = appended.into_iter().map(|appended| Ok(convert::position(&appended?)));
        Ok(Response::new(AppendResponse {
            positions: positions.collect::<Result<_, StreamError>>().or_status()?,
        }))
    }

    type AppendStreamStream = Answers<AppendStreamResponse>;

    async fn append_stream(
        &self,
        request: Request<Streaming<AppendStreamRequest>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        let appending = Appending::new(self.streams.clone(), request.into_inner());
        let batches = appending.batches();
        Ok(Response::new(Box::pin(batches.buffered(BATCHES_IN_FLIGHT_MAX))))
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let room = match queue::reader(&request) {
            Some(reader) => Some(reader.hold(ANSWER_BYTES_MAX, None).await),
            None => None,
        };
        let request = request.into_inner();
        let page = Page {
            topic: &request.topic,
            partition: request.partition,
            start: convert::start(request.start.as_ref())?,
            records_max: super::convert::count(request.max_records, "max_records", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?,
            bytes_max: convert::PAGE_BYTES_MAX,
            linearizable: request.linearizable,
        };
        let records = self.streams.read(page).await.or_status()?;
        Ok(held(convert::records(records), room))
    }

    type TailStream = Answers<TailResponse>;

    async fn tail(&self, request: Request<TailRequest>) -> Result<Response<Self::TailStream>, Status> {
        let reader = queue::reader(&request);
        let tailing = Tailing::new(&self.streams, &request.into_inner(), reader)?;
        Ok(Response::new(Box::pin(tailing.responses())))
    }

    async fn commit_cursor(
        &self,
        request: Request<CommitCursorRequest>,
    ) -> Result<Response<CommitCursorResponse>, Status> {
        let request = request.into_inner();
        let given = request.commits.len();
        if given == 0 || given > BATCH_MESSAGES_MAX {
            return Err(invalid(format!(
                "{given} commits; 1 to {BATCH_MESSAGES_MAX} are allowed"
            )));
        }
        let cursors = request.commits.iter().map(|commit| {
            let reader = commit.reader.as_ref().ok_or_else(|| invalid("reader is missing"))?;
            Ok(NewCursor {
                topic: &commit.topic,
                partition: commit.partition,
                group: &reader.group,
                member: &reader.member,
                next: commit.next_seq,
            })
        });
        let cursors = cursors.collect::<Result<Vec<_>, Status>>()?;
        let mut response = CommitCursorResponse::default();
        for (index, committed) in self.streams.commit(&cursors).await.into_iter().enumerate() {
            let next_seq = match committed {
                Ok(committed) => committed.next.0,
                Err(error) => {
                    response.failures.push(failure(index, &error));
                    0
                }
            };
            response.cursors.push(CommittedCursor { next_seq });
        }
        Ok(Response::new(response))
    }

    async fn get_cursors(&self, request: Request<GetCursorsRequest>) -> Result<Response<GetCursorsResponse>, Status> {
        let request = request.into_inner();
        let max = super::convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        let group = Some(request.group.as_str()).filter(|group| !group.is_empty());
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(read_token(token).ok_or_else(|| invalid("page_token is none that was given"))?),
        };
        let (topic, partition) = (request.topic.as_str(), request.partition);
        let page = self
            .streams
            .cursors(topic, partition, group, after, max, request.linearizable);
        let (cursors, more) = page.await.or_status()?;
        let next_page_token = match cursors.last().filter(|_| more) {
            Some(last) => token(&last.group, &last.member),
            None => String::new(),
        };
        let cursors = cursors.into_iter().map(|cursor| Cursor {
            next_seq: cursor.next.0,
            behind: cursor.end.0.saturating_sub(cursor.next.0),
            reader: Some(Reader {
                group: cursor.group,
                member: cursor.member,
            }),
        });
        Ok(Response::new(GetCursorsResponse {
            cursors: cursors.collect(),
            next_page_token,
        }))
    }

    async fn delete_cursors(
        &self,
        request: Request<DeleteCursorsRequest>,
    ) -> Result<Response<DeleteCursorsResponse>, Status> {
        let DeleteCursorsRequest {
            topic,
            partition,
            group,
            member,
        } = request.into_inner();
        let deleted = self
            .streams
            .forget(&topic, partition, &group, member.as_deref())
            .await
            .or_status()?;
        Ok(Response::new(DeleteCursorsResponse { deleted }))
    }

    async fn create_topic(
        &self,
        request: Request<CreateTopicRequest>,
    ) -> Result<Response<CreateTopicResponse>, Status> {
        let request = request.into_inner();
        let partitions = Some(request.partitions).filter(|partitions| *partitions > 0);
        let retention = request.retention.map(convert::retention).transpose()?;
        let (topic, created) = self
            .streams
            .create_topic(&request.topic, partitions, retention)
            .await
            .or_status()?;
        Ok(Response::new(CreateTopicResponse {
            topic: Some(convert::topic(&topic)),
            created,
        }))
    }

    async fn update_topic(
        &self,
        request: Request<UpdateTopicRequest>,
    ) -> Result<Response<UpdateTopicResponse>, Status> {
        let request = request.into_inner();
        let retention = request.retention.ok_or_else(|| invalid("retention is missing"))?;
        let retention = convert::retention(retention)?;
        let topic = self.streams.update_topic(&request.topic, retention).await.or_status()?;
        Ok(Response::new(UpdateTopicResponse {
            topic: Some(convert::topic(&topic)),
        }))
    }

    async fn delete_topic(
        &self,
        request: Request<DeleteTopicRequest>,
    ) -> Result<Response<DeleteTopicResponse>, Status> {
        self.streams
            .delete_topic(&request.into_inner().topic)
            .await
            .or_status()?;
        Ok(Response::new(DeleteTopicResponse {}))
    }

    async fn get_topic(&self, request: Request<GetTopicRequest>) -> Result<Response<GetTopicResponse>, Status> {
        let request = request.into_inner();
        let topic = self
            .streams
            .topic(&request.topic, request.linearizable)
            .await
            .or_status()?;
        Ok(Response::new(GetTopicResponse {
            partitions: topic.partitions.iter().map(convert::partition).collect(),
            topic: Some(convert::topic(&topic)),
        }))
    }

    async fn list_topics(&self, request: Request<ListTopicsRequest>) -> Result<Response<ListTopicsResponse>, Status> {
        let request = request.into_inner();
        let max = super::convert::count(request.page_size, "page_size", PAGE_DEFAULT, BATCH_MESSAGES_MAX)?;
        let after = Some(request.page_token.as_str()).filter(|token| !token.is_empty());
        let (topics, more) = self.streams.topics(after, max);
        let last = topics.last().filter(|_| more).map(|last| last.name.clone());
        Ok(Response::new(ListTopicsResponse {
            topics: topics.iter().map(convert::topic).collect(),
            next_page_token: last.unwrap_or_default(),
        }))
    }
}

fn failure(index: usize, error: &StreamError) -> AppendFailure {
    AppendFailure {
        index: u32::try_from(index).unwrap_or(u32::MAX),
        reason: error.reason().to_owned(),
        message: error.to_string(),
        retriable: error.retry_after().is_some(),
    }
}

/// Says where a page of positions ends: the length of the group, so that both names may hold anything.
fn token(group: &str, member: &str) -> String {
    format!("{}{TOKEN_SEPARATOR}{group}{member}", group.len())
}

fn read_token(token: &str) -> Option<(&str, &str)> {
    let (length, names) = token.split_once(TOKEN_SEPARATOR)?;
    names.split_at_checked(length.parse().ok()?)
}

/// What became of the records of a batch.
fn batch_response(number: u64, results: Vec<Result<Appended, StreamError>>) -> AppendStreamResponse {
    let mut response = AppendStreamResponse {
        batch: number,
        partitions: Vec::with_capacity(results.len()),
        seqs: Vec::with_capacity(results.len()),
        ..AppendStreamResponse::default()
    };
    for (index, result) in results.into_iter().enumerate() {
        let (partition, seq) = match result {
            Ok(appended) => {
                if appended.duplicate {
                    response.duplicates.push(u32::try_from(index).unwrap_or(u32::MAX));
                }
                (appended.partition, appended.seq.0)
            }
            Err(error) => {
                response.failures.push(failure(index, &error));
                (0, 0)
            }
        };
        response.partitions.push(partition);
        response.seqs.push(seq);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_token_holds_any_names() {
        for names in [("g", ""), ("1/2", "/"), ("größe", "ü/7")] {
            assert_eq!(read_token(&token(names.0, names.1)), Some(names));
        }
        for token in ["", "x", "3/ab", "-1/ab", "1/ü"] {
            assert_eq!(read_token(token), None, "{token}");
        }
    }
}
