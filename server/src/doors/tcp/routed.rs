//! Answering what is published to topics and exchanges, and changes of exchanges.

use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::Connection;
use super::reply::{self, Refusal};
use super::request::ExchangeChange;
use super::run::{Asked, RoutedRun};
use crate::doors::exchanges;
use crate::service::ServiceError;

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<'_, S> {
    pub(super) async fn publish_routed(&mut self, run: RoutedRun<'_>) {
        let published = match run.batch {
            Ok(batch) => batch.publish().await.map_err(|error| Refusal::from(&error)),
            Err(refusal) => Err(refusal),
        };
        let failure = published.as_ref().err().cloned();
        let failure = failure.unwrap_or(Refusal::from(&ServiceError::Stopped));
        let mut answers = published.unwrap_or_default().into_iter();
        for request in run.requests {
            match request.map(|asked| (asked, answers.next())) {
                Ok((Asked { topic, tells }, Some(Ok(routed)))) => {
                    let confirm = self.next_confirm();
                    match tells {
                        true => reply::routed(&mut self.out, routed, &topic, confirm),
                        false => reply::published(&mut self.out, routed.id, &topic, confirm),
                    }
                }
                Ok((_, Some(Err(error)))) => reply::refusal(&mut self.out, &Refusal::from(&error)),
                Ok((_, None)) => reply::refusal(&mut self.out, &failure),
                Err(refusal) => reply::refusal(&mut self.out, &refusal),
            }
        }
    }

    pub(super) async fn change_exchange(&mut self, change: &ExchangeChange<'_>) {
        let queues = self.door.queues();
        let changed = match change {
            ExchangeChange::Declare(declare) => exchanges::declare(queues, declare).await,
            ExchangeChange::Delete(delete) => queues.delete_exchange(&delete.name).await,
            ExchangeChange::Bind(bind) => exchanges::bind(queues, bind).await,
            ExchangeChange::Unbind(bind) => exchanges::unbind(queues, bind).await,
        };
        match changed {
            Ok(()) => reply::status(&mut self.out, "ok"),
            Err(error) => reply::refusal(&mut self.out, &Refusal::from(&error)),
        }
    }
}
