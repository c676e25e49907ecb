//! `boltq consume --follow`: prints messages as they come, until it is interrupted.
//!
//! The leases belong to the stream: what was not acknowledged when it ends is delivered to others at once.

use std::collections::HashMap;
use std::io;
use std::pin::pin;
use std::time::Duration;

use boltq_proto::queue::v1::subscribe_request::Request;
use boltq_proto::queue::v1::{Settled, SubscribeAck, SubscribeInit, SubscribeRequest, SubscribeResponse};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use super::settle::Tokens;
use super::{Context, note, wire};
use crate::args::Consume;
use crate::connect::answer;
use crate::error::{CliError, Unsettled};
use crate::printer::{Delivered, Printer};

/// How long the last acknowledgements may take when the command ends.
const LAST_ACKS_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &mut Context, consume: &Consume) -> Result<(), CliError> {
    let mut interrupted = pin!(interrupted()?);
    // Unbounded in type only: the server has at most `prefetch` messages out that are not acknowledged.
    let (requests, receiver) = unbounded_channel();
    let init = SubscribeInit {
        queue: consume.queue.clone(),
        max_in_flight: u32::try_from(consume.max.unwrap_or(u64::MAX))
            .map_or(consume.prefetch, |max| max.min(consume.prefetch)),
        max_batch: 0,
        lease: consume.lease.map(wire).transpose()?,
    };
    let mut stream = Stream {
        requests,
        unconfirmed: HashMap::new(),
        requested: 0,
        unsettled: Vec::new(),
    };
    stream.send(Request::Init(init))?;
    let mut responses = answer(
        context
            .server
            .queues()
            .subscribe(UnboundedReceiverStream::new(receiver)),
        None,
    )
    .await?;
    if !consume.ack {
        note("not acknowledging: a message comes again when its lease ends, which counts as a failed attempt");
    }
    let mut left = consume.max.unwrap_or(u64::MAX);
    while left > 0 {
        let response = tokio::select! {
            biased;
            () = &mut interrupted => break,
            response = responses.message() => response?,
        };
        let response = response.ok_or_else(|| ended("the server ended the stream"))?;
        stream.take(response, &mut left, consume.ack, &mut context.printer)?;
    }
    timeout(LAST_ACKS_TIMEOUT, stream.confirm(&mut responses))
        .await
        .unwrap_or_else(|_| Err(ended("the last acknowledgements were not confirmed")))?;
    match stream.unsettled.is_empty() {
        true => Ok(()),
        false => Err(CliError::NotSettled(stream.unsettled)),
    }
}

/// Our side of the subscription.
struct Stream {
    requests: UnboundedSender<SubscribeRequest>,
    /// Acknowledgements that the server has not confirmed, by the number of their request.
    unconfirmed: HashMap<u64, Tokens>,
    requested: u64,
    unsettled: Vec<Unsettled>,
}

impl Stream {
    fn send(&self, request: Request) -> Result<(), CliError> {
        let request = SubscribeRequest { request: Some(request) };
        self.requests.send(request).map_err(|_| ended("the stream was closed"))
    }

    /// Prints at most `left` deliveries, flushes, and then acknowledges them if `ack`.
    fn take(
        &mut self,
        response: SubscribeResponse,
        left: &mut u64,
        ack: bool,
        printer: &mut Printer,
    ) -> Result<(), CliError> {
        self.settled(response.settled)?;
        let mut tokens = Tokens::default();
        for delivery in response.deliveries {
            if *left == 0 {
                break;
            }
            *left -= 1;
            tokens.insert(&delivery)?;
            printer.print(&Delivered::read(delivery)?)?;
        }
        printer.flush()?;
        if ack && !tokens.is_empty() {
            self.requested += 1;
            self.send(Request::Ack(SubscribeAck {
                delivery_tokens: tokens.list(),
                request_id: self.requested,
            }))?;
            self.unconfirmed.insert(self.requested, tokens);
        }
        Ok(())
    }

    fn settled(&mut self, settled: Vec<Settled>) -> Result<(), CliError> {
        for Settled { request_id, failures } in settled {
            let tokens = self.unconfirmed.remove(&request_id).unwrap_or_default();
            self.unsettled.extend(tokens.unsettled(&failures)?);
        }
        Ok(())
    }

    /// Waits until every acknowledgement is durable. What is delivered meanwhile goes back when the stream ends.
    async fn confirm(&mut self, responses: &mut Streaming<SubscribeResponse>) -> Result<(), CliError> {
        while !self.unconfirmed.is_empty() {
            let response = responses.message().await?;
            let response = response.ok_or_else(|| ended("the server ended the stream"))?;
            self.settled(response.settled)?;
        }
        Ok(())
    }
}

fn ended(why: &str) -> CliError {
    CliError::Lost { why: why.to_owned() }
}

/// Ends with the first SIGINT or SIGTERM, which are caught from now on.
pub(super) fn interrupted() -> Result<impl Future<Output = ()>, CliError> {
    let catch = |kind| signal(kind).map_err(|error: io::Error| CliError::Runtime(error));
    let (mut interrupt, mut terminate) = (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
