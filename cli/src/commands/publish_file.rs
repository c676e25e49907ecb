//! `boltq publish --file`: a message per line, over one stream with several batches outstanding.
//!
//! A message that is refused is named on stderr with its line, and the others go on.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Instant;

use boltq_core::limits::MESSAGE_BYTES_MAX;
use boltq_proto::queue::v1::queue_service_client::QueueServiceClient;
use boltq_proto::queue::v1::{AckLevel, PublishFailure, PublishStreamRequest, PublishStreamResponse};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::lines::{self, Batch, Line};
use super::publish::Template;
use super::{Context, note};
use crate::connect::{ANSWER_TIMEOUT, Wire, answer};
use crate::error::CliError;
use crate::printer::{BulkPublished, Id, Printer, PublishedId};
use crate::progress::{self, Progress};

/// Batches that may be unanswered: enough to keep the server busy, few enough to keep memory small.
const OUTSTANDING_BATCHES_MAX: usize = 16;

pub(super) async fn run(
    context: &mut Context,
    queue: &str,
    file: &Path,
    template: &Template,
    (ack_level, print_ids): (AckLevel, bool),
) -> Result<(), CliError> {
    let name = file.display().to_string();
    let batches = match name.as_str() {
        "-" => lines::read(io::stdin(), template.header_bytes()),
        _ => match File::open(file) {
            Ok(input) => lines::read(input, template.header_bytes()),
            Err(error) => return Err(CliError::Input { file: name, error }),
        },
    };
    let make = |lines: Vec<Line>| PublishStreamRequest {
        queue: queue.to_owned(),
        messages: lines.into_iter().map(|line| template.line(line)).collect(),
        ack_level: ack_level.into(),
    };
    let started = Instant::now();
    // Ids may go to the same terminal, and show by themselves that it goes on.
    let progress = if print_ids { Progress::none() } else { Progress::new() };
    let mut bulk = Bulk {
        unanswered: VecDeque::new(),
        answered_batches: 0,
        published: 0,
        refused: 0,
        ids_expected: ack_level == AckLevel::Quorum,
        input_ended: false,
        input_error: None,
        progress,
    };
    let printer = print_ids.then_some(&mut context.printer);
    let end = bulk.publish(batches, make, context.server.queues(), printer).await;
    let Bulk { published, refused, .. } = bulk;
    progress::clear();
    // With ids they are the result, and what reads them from a pipe wants nothing else.
    match print_ids {
        true => note(format_args!("published {published} and refused {refused} messages")),
        false => {
            let seconds = started.elapsed().as_secs_f64();
            context.printer.print(&BulkPublished {
                queue,
                published,
                refused,
                seconds,
            })?;
        }
    }
    end.inspect_err(|_| bulk.note_unanswered())?;
    match bulk.input_error {
        Some(error) => Err(CliError::Input { file: name, error }),
        None if refused > 0 => Err(CliError::NotAllPublished {
            refused,
            all: published + refused,
        }),
        None => Ok(()),
    }
}

#[derive(Debug)]
struct Bulk {
    /// Line numbers of the batches that are not answered yet, oldest first.
    unanswered: VecDeque<Vec<u64>>,
    answered_batches: u64,
    published: u64,
    refused: u64,
    ids_expected: bool,
    input_ended: bool,
    input_error: Option<io::Error>,
    progress: Progress,
}

impl Bulk {
    /// Publishes until the input ends, and returns when everything is answered.
    async fn publish(
        &mut self,
        mut batches: Receiver<io::Result<Batch>>,
        make: impl Fn(Vec<Line>) -> PublishStreamRequest,
        mut client: QueueServiceClient<Wire>,
        mut printer: Option<&mut Printer>,
    ) -> Result<(), CliError> {
        let (requests, receiver) = channel(OUTSTANDING_BATCHES_MAX);
        // A server may want to see the first request before it answers the call.
        while self.unanswered.is_empty() && !self.input_ended {
            self.send(batches.recv().await, &make, &requests)?;
        }
        if self.unanswered.is_empty() {
            return Ok(());
        }
        let call = client.publish_stream(ReceiverStream::new(receiver));
        let mut responses = answer(call, None).await?;
        while !(self.input_ended && self.unanswered.is_empty()) {
            let may_read = !self.input_ended && self.unanswered.len() < OUTSTANDING_BATCHES_MAX;
            tokio::select! {
                biased;
                response = next(&mut responses, !self.unanswered.is_empty()) => {
                    self.take(response?, printer.as_deref_mut())?;
                }
                batch = batches.recv(), if may_read => self.send(batch, &make, &requests)?,
            }
        }
        Ok(())
    }

    /// Sends what was read, which may also be the end of the input.
    fn send(
        &mut self,
        read: Option<io::Result<Batch>>,
        make: impl Fn(Vec<Line>) -> PublishStreamRequest,
        requests: &Sender<PublishStreamRequest>,
    ) -> Result<(), CliError> {
        let Batch { lines, too_long } = match read {
            Some(Ok(batch)) => batch,
            Some(Err(error)) => {
                self.input_error = Some(error);
                return Ok(());
            }
            None => {
                self.input_ended = true;
                return Ok(());
            }
        };
        for number in too_long {
            self.refused += 1;
            note(format_args!(
                "line {number}: a message has at most {MESSAGE_BYTES_MAX} bytes (MESSAGE_TOO_LARGE)"
            ));
        }
        if lines.is_empty() {
            return Ok(());
        }
        self.unanswered
            .push_back(lines.iter().map(|line| line.number).collect());
        // There is room for every batch that may be unanswered, so this fails only when the stream has ended.
        requests.try_send(make(lines)).map_err(|_| CliError::Lost {
            why: "the stream was closed".to_owned(),
        })
    }

    fn take(&mut self, response: PublishStreamResponse, printer: Option<&mut Printer>) -> Result<(), CliError> {
        let PublishStreamResponse {
            batch,
            message_ids,
            failures,
        } = response;
        let unexpected = |what: &str| CliError::BadAnswer(what.to_owned());
        self.answered_batches += 1;
        if batch != self.answered_batches {
            return Err(unexpected("batches are answered out of order"));
        }
        let numbers = self.unanswered.pop_front().unwrap_or_default();
        // Who asks for less than QUORUM gets none.
        if self.ids_expected && message_ids.len() != numbers.len() {
            return Err(unexpected("the number of ids is not that of the messages"));
        }
        let refused = failures.len() as u64;
        for PublishFailure {
            index,
            reason,
            message,
            retriable,
        } in failures
        {
            let number = numbers
                .get(index as usize)
                .ok_or_else(|| unexpected("a failure of no message"))?;
            let hint = if retriable { "; try again" } else { "" };
            note(format_args!("line {number}: {message} ({reason}){hint}"));
        }
        self.published += (numbers.len() as u64).saturating_sub(refused);
        self.refused += refused;
        let (published, refused) = (self.published, self.refused);
        self.progress
            .show(|| format!("published {published} messages, refused {refused}"));
        if let Some(printer) = printer {
            for id in message_ids.iter().filter(|id| !id.is_empty()) {
                printer.print(&PublishedId {
                    message_id: Id::read(id)?,
                })?;
            }
            printer.flush()?;
        }
        Ok(())
    }

    /// Says where to look when the stream broke: these lines may be stored or not.
    fn note_unanswered(&self) {
        let first = self.unanswered.front().and_then(|numbers| numbers.first());
        let last = self.unanswered.back().and_then(|numbers| numbers.last());
        if let (Some(first), Some(last)) = (first, last) {
            note(format_args!("lines {first} to {last} are not confirmed"));
        }
    }
}

/// The next answer. The input may be silent for ever, an answer that is due may not.
async fn next(
    responses: &mut Streaming<PublishStreamResponse>,
    is_due: bool,
) -> Result<PublishStreamResponse, CliError> {
    let response = match is_due {
        true => timeout(ANSWER_TIMEOUT, responses.message())
            .await
            .map_err(|_| CliError::Lost {
                why: format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()),
            })?,
        false => responses.message().await,
    };
    response?.ok_or_else(|| CliError::Lost {
        why: "the server ended the stream".to_owned(),
    })
}
