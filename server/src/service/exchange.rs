//! Exchanges and their bindings. Publishing to them is in [`super::routed`].

use boltq_core::check_name;
use boltq_core::limits::HEADER_BYTES_MAX;
use boltq_queue::{Exchange, ExchangeKind, HeaderRule, Outcome, RoutingRefusal, command};
use boltq_raft::Proposal;
use bytes::BytesMut;

use super::error::ServiceError;
use super::queue::Queues;
use super::routed::{check_key, check_named};

/// An exchange as it is declared.
#[derive(Debug, Clone, Copy)]
pub struct NewExchange<'a> {
    /// Its name.
    pub name: &'a str,
    /// How it chooses.
    pub kind: ExchangeKind,
    /// Kept, and shown; every exchange survives.
    pub durable: bool,
    /// What gets what matches nothing; empty for none.
    pub alternate: &'a str,
}

/// A binding as it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct NewBinding<'a> {
    /// The exchange.
    pub exchange: &'a str,
    /// The queue, which is created if it does not exist.
    pub queue: &'a str,
    /// What is compared with the routing key.
    pub key: &'a str,
    /// Of a headers exchange.
    pub rule: &'a HeaderRule,
}

/// An exchange as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeInfo {
    /// Its name.
    pub name: String,
    /// How it chooses.
    pub kind: ExchangeKind,
    /// As it was declared.
    pub durable: bool,
    /// What gets what matches nothing; empty for none.
    pub alternate: String,
    /// Number of bindings.
    pub bindings: usize,
}

/// A binding as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingInfo {
    /// The queue.
    pub queue: String,
    /// What is compared with the routing key.
    pub key: String,
    /// Of a headers exchange.
    pub rule: HeaderRule,
}

impl Queues {
    /// Creates an exchange, unless there is one of this name and kind, which stays as it is. Returns what there is.
    ///
    /// # Errors
    /// A name is not acceptable, there is one of another kind, or nothing was done.
    pub async fn declare_exchange(&self, new: NewExchange<'_>) -> Result<ExchangeInfo, ServiceError> {
        check_named("exchange", new.name)?;
        if !new.alternate.is_empty() {
            check_named("alternate_exchange", new.alternate)?;
        }
        let alternate = Some(new.alternate).filter(|name| !name.is_empty());
        let declare = |out: &mut BytesMut| command::declare_exchange(out, new.name, new.kind, new.durable, alternate);
        self.change_exchange(new.name, declare).await?;
        self.exchange(new.name)
    }

    /// Removes an exchange with its bindings.
    ///
    /// # Errors
    /// There is none, or nothing was done.
    pub async fn delete_exchange(&self, name: &str) -> Result<(), ServiceError> {
        check_named("exchange", name)?;
        self.change_exchange(name, |out| command::delete_exchange(out, name))
            .await?;
        Ok(())
    }

    /// Binds a queue to an exchange, and returns whether that is new.
    ///
    /// # Errors
    /// A name, the key or the rule is not acceptable, there is no such exchange, or nothing was done.
    pub async fn bind(&self, new: NewBinding<'_>) -> Result<bool, ServiceError> {
        let NewBinding {
            exchange,
            queue,
            key,
            rule,
        } = new;
        check_named("exchange", exchange)?;
        check_name(queue)?;
        check_key("binding_key", key)?;
        let bytes: usize = rule.pairs().map(|(key, value)| key.len() + value.len()).sum();
        if bytes > HEADER_BYTES_MAX {
            return Err(ServiceError::HeadersTooLarge { bytes });
        }
        let bind = |out: &mut BytesMut| command::bind(out, exchange, queue, key, rule);
        let outcome = self.change_exchange(exchange, bind).await?;
        Ok(outcome == Outcome::Bound(true))
    }

    /// Removes all bindings of a queue with a key, and returns how many there were.
    ///
    /// # Errors
    /// There is no such exchange, or nothing was done.
    pub async fn unbind(&self, exchange: &str, queue: &str, key: &str) -> Result<usize, ServiceError> {
        check_named("exchange", exchange)?;
        check_name(queue)?;
        check_key("binding_key", key)?;
        let unbind = |out: &mut BytesMut| command::unbind(out, exchange, queue, key);
        match self.change_exchange(exchange, unbind).await? {
            Outcome::Unbound(count) => Ok(count),
            _ => Err(ServiceError::Stopped),
        }
    }

    async fn change_exchange(&self, name: &str, write: impl FnOnce(&mut BytesMut)) -> Result<Outcome, ServiceError> {
        let mut proposal = Proposal::new();
        write(proposal.begin());
        let outcomes = self.confirmed(self.propose(proposal)).await?;
        let exchange = || name.to_owned();
        match outcomes.into_iter().next() {
            Some(Outcome::Refused(RoutingRefusal::OtherKind(kind))) => Err(ServiceError::ExchangeExists {
                exchange: exchange(),
                kind,
            }),
            Some(Outcome::Refused(_)) => Err(ServiceError::ExchangeNotFound { exchange: exchange() }),
            Some(outcome) => Ok(outcome),
            None => Err(ServiceError::Stopped),
        }
    }

    /// The exchange of this name.
    ///
    /// # Errors
    /// There is none.
    pub fn exchange(&self, name: &str) -> Result<ExchangeInfo, ServiceError> {
        let found = self
            .inner
            .plane
            .with(|plane| plane.machine().exchange(name).map(|exchange| info(name, exchange)));
        found.ok_or_else(|| ServiceError::ExchangeNotFound {
            exchange: name.to_owned(),
        })
    }

    /// Exchanges in byte order of their names: those after a name, `max` at most; and whether there are more.
    #[must_use]
    pub fn exchanges(&self, after: &str, max: usize) -> (Vec<ExchangeInfo>, bool) {
        self.inner.plane.with(|plane| {
            let mut found = plane.machine().exchanges().filter(|(name, _)| *name > after);
            let page = found.by_ref().take(max).map(|(name, exchange)| info(name, exchange));
            let page: Vec<_> = page.collect();
            (page, found.next().is_some())
        })
    }

    /// Bindings of an exchange in the order of their keys: those after the first `after` ones, `max` at most; and whether
    /// there are more.
    ///
    /// # Errors
    /// There is no such exchange.
    pub fn bindings(&self, name: &str, after: usize, max: usize) -> Result<(Vec<BindingInfo>, bool), ServiceError> {
        self.inner.plane.with(|plane| {
            let machine = plane.machine();
            let exchange = machine.exchange(name).ok_or_else(|| ServiceError::ExchangeNotFound {
                exchange: name.to_owned(),
            })?;
            let mut bindings = exchange.bindings().skip(after);
            let page = bindings.by_ref().take(max).map(|(key, queue, rule)| BindingInfo {
                queue: machine.queue_name(queue).unwrap_or_default().to_owned(),
                key: key.to_owned(),
                rule: rule.clone(),
            });
            let page: Vec<_> = page.collect();
            Ok((page, bindings.next().is_some()))
        })
    }
}

fn info(name: &str, exchange: &Exchange) -> ExchangeInfo {
    ExchangeInfo {
        name: name.to_owned(),
        kind: exchange.kind(),
        durable: exchange.is_durable(),
        alternate: exchange.alternate().unwrap_or_default().to_owned(),
        bindings: exchange.binding_count(),
    }
}
