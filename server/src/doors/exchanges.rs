//! Carrying out what the binary protocol and the admin port ask: publishes, and changes of exchanges.

use super::body::shortened;
use super::requests::{Bind, Declare, Publish, PublishExchange};
use crate::service::{
    ExchangeKind, HeaderRule, IdempotencyKey, NewBinding, NewExchange, NewMessage, PublishBatch, Queues, RoutedBatch,
    ServiceError,
};

/// Longest part of a request that is repeated in an error.
const ECHO_BYTES_MAX: usize = 100;

pub(super) async fn declare(queues: &Queues, declare: &Declare<'_>) -> Result<(), ServiceError> {
    let kind = match &*declare.kind {
        "" => ExchangeKind::Direct,
        kind => kind.parse().map_err(|_| ServiceError::UnknownExchangeType {
            kind: shortened(kind, ECHO_BYTES_MAX).into_owned(),
        })?,
    };
    let new = NewExchange {
        name: &declare.name,
        kind,
        durable: declare.durable,
        alternate: "",
    };
    queues.declare_exchange(new).await.map(drop)
}

pub(super) async fn bind(queues: &Queues, bind: &Bind<'_>) -> Result<(), ServiceError> {
    let pairs = bind.headers.iter().map(|(key, value)| (&**key, &**value));
    let new = NewBinding {
        exchange: &bind.exchange,
        queue: &bind.queue,
        key: &bind.binding_key,
        rule: &HeaderRule::new(bind.match_all, pairs),
    };
    queues.bind(new).await.map(drop)
}

/// For which headers do not matter.
pub(super) async fn unbind(queues: &Queues, bind: &Bind<'_>) -> Result<(), ServiceError> {
    let removed = queues.unbind(&bind.exchange, &bind.queue, &bind.binding_key);
    removed.await.map(drop)
}

pub(super) fn push_queue(batch: &mut PublishBatch, publish: &Publish<'_>) -> Result<(), ServiceError> {
    let message = NewMessage {
        payload: publish.payload(),
        json: true,
        priority: publish.priority,
        delay_ns: publish.delay_ns,
        ttl_ns: publish.ttl_ns,
        ordering_key: &publish.ordering_key,
    };
    let headers = publish.headers.iter().map(|(key, value)| (&**key, &**value));
    match IdempotencyKey::read(&publish.idempotency_key)? {
        None => batch.push(&publish.topic, &message, headers),
        Some(key) => batch.push_once(&publish.topic, key, &message, headers),
    }
}

pub(super) fn push_exchange(batch: &mut RoutedBatch, publish: &PublishExchange<'_>) -> Result<(), ServiceError> {
    let message = NewMessage {
        payload: publish.payload(),
        json: true,
        priority: publish.priority,
        delay_ns: 0,
        ttl_ns: 0,
        ordering_key: &publish.ordering_key,
    };
    let headers = publish.headers.iter().map(|(key, value)| (&**key, &**value));
    let key = IdempotencyKey::read(&publish.idempotency_key)?;
    batch.push_exchange(&publish.exchange, &publish.routing_key, key, &message, headers)
}

pub(super) fn push_topic(batch: &mut RoutedBatch, publish: &Publish<'_>) -> Result<(), ServiceError> {
    let message = NewMessage {
        payload: publish.payload(),
        json: true,
        priority: publish.priority,
        delay_ns: 0,
        ttl_ns: publish.ttl_ns,
        ordering_key: &publish.ordering_key,
    };
    let headers = publish.headers.iter().map(|(key, value)| (&**key, &**value));
    let key = IdempotencyKey::read(&publish.idempotency_key)?;
    batch.push_topic(&publish.topic, key, &message, headers)
}
