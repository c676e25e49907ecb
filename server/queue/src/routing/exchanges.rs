//! All exchanges but the default one, which has no state: it routes to the queue that the routing key names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::command::ExchangeKind;
use super::exchange::Exchange;
use super::{ALTERNATES_MAX, RoutingRefusal};
use crate::place::QueueId;

#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    exchanges: BTreeMap<Arc<str>, Exchange>,
}

impl Exchanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }

    /// In the byte order of their names.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Exchange)> {
        self.exchanges.iter().map(|(name, exchange)| (&**name, exchange))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Exchange> {
        self.exchanges.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Exchange> {
        self.exchanges.get_mut(name)
    }

    pub(super) fn last_name(&self) -> Option<&str> {
        self.exchanges.last_key_value().map(|(name, _)| &**name)
    }

    /// Returns whether it is new. One that is there stays as it is.
    pub(super) fn declare(
        &mut self,
        name: &str,
        kind: ExchangeKind,
        durable: bool,
        alternate: Option<&str>,
    ) -> Result<bool, RoutingRefusal> {
        match self.exchanges.get(name) {
            Some(there) if there.kind() != kind => Err(RoutingRefusal::OtherKind(there.kind())),
            Some(_) => Ok(false),
            None => {
                let exchange = Exchange::new(kind, durable, alternate.map(Into::into));
                self.exchanges.insert(name.into(), exchange);
                Ok(true)
            }
        }
    }

    pub(super) fn delete(&mut self, name: &str) -> Result<(), RoutingRefusal> {
        self.exchanges.remove(name).map(drop).ok_or(RoutingRefusal::NoExchange)
    }

    /// Removes all bindings to a queue.
    pub(crate) fn unbind_queue(&mut self, queue: QueueId) {
        for exchange in self.exchanges.values_mut() {
            exchange.unbind_queue(queue);
        }
    }

    /// Adds the queues that a message goes to. Where nothing matches, the alternate is asked, and its alternate, as long as
    /// there are any; not for ever, as they may lead back.
    pub(super) fn route(
        &self,
        name: &str,
        key: &str,
        headers: &[(&str, &str)],
        to: &mut BTreeSet<QueueId>,
    ) -> Result<(), RoutingRefusal> {
        let mut exchange = self.get(name).ok_or(RoutingRefusal::NoExchange)?;
        for _ in 0..ALTERNATES_MAX {
            exchange.choose(key, headers, to);
            let alternate = exchange.alternate().and_then(|name| self.get(name));
            match alternate.filter(|_| to.is_empty()) {
                Some(alternate) => exchange = alternate,
                None => break,
            }
        }
        Ok(())
    }

    /// Whether the headers of a message decide where it goes.
    pub(super) fn looks_at_headers(&self, name: &str) -> bool {
        let mut exchange = self.get(name);
        for _ in 0..ALTERNATES_MAX {
            match exchange {
                Some(there) if there.kind() == ExchangeKind::Headers => return true,
                Some(there) => exchange = there.alternate().and_then(|name| self.get(name)),
                None => return false,
            }
        }
        false
    }
}
