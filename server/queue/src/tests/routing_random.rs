//! Random commands about topics and exchanges against lists that are looked through: the same queues are chosen, messages are
//! conserved, records are freed once, replicas stay equal, and the state survives a snapshot after every step.

use std::collections::{BTreeMap, BTreeSet};

use boltq_core::{MessageId, Millis};
use proptest::prelude::*;
use proptest::sample::Index;

use super::fixture::{Message, settle};
use super::model::{Model, State};
use super::nodes::Nodes;
use super::routed_once::{exchange_once, topic_once};
use super::routing::{attach, publish_exchange, publish_topic, written};
use crate::command::{self, Settle};
use crate::{ExchangeKind, HeaderRule, Outcome, QueueId, QueueOption, QueueOptionSet, QueueOptions, RoutingRefusal};

const TOPICS: [&str; 2] = ["t", "t:a"];
const SUBSCRIPTIONS: [&str; 3] = ["a", "b", "a:b"];
const EXCHANGES: [&str; 3] = ["e", "f", "g"];
const QUEUES: [&str; 3] = ["q", "p", "t:a"];
const KINDS: [ExchangeKind; 4] = [
    ExchangeKind::Direct,
    ExchangeKind::Fanout,
    ExchangeKind::Topic,
    ExchangeKind::Headers,
];

#[derive(Debug, Clone)]
enum Step {
    PublishTopic(usize, Vec<u8>),
    Attach(usize, usize, bool),
    /// Unless it was attached so many ms ago or later.
    Remove(usize, usize, u64),
    Declare(usize, usize, Option<usize>),
    Delete(usize),
    Bind(usize, usize, String, Option<(bool, Vec<(u8, u8)>)>),
    Unbind(usize, usize, String),
    PublishExchange(Option<usize>, String, Vec<(u8, u8)>, u8),
    /// With a key, that is remembered so many ms.
    TopicOnce(usize, u8, u64),
    ExchangeOnce(Option<usize>, String, u8, u64),
    /// The default time to live of a queue.
    Ttl(usize, Option<u64>),
    Expire(usize),
    Ack(Index),
    Pass(u64),
    FailOver,
}

fn step() -> impl Strategy<Value = Step> {
    let key = || "([ab*#]\\.){0,2}[ab*#]?";
    let pairs = || prop::collection::vec((0u8..3, 0u8..2), 0..3);
    prop_oneof![
        4 => (0usize..2, prop::collection::vec(0u8..=9, 0..4)).prop_map(|(topic, messages)| Step::PublishTopic(topic, messages)),
        4 => (0usize..2, 0usize..3, any::<bool>()).prop_map(|(topic, id, create)| Step::Attach(topic, id, create)),
        2 => (0usize..2, 0usize..3, 0u64..100).prop_map(|(topic, id, ms)| Step::Remove(topic, id, ms)),
        3 => (0usize..3, 0usize..4, prop::option::of(0usize..3)).prop_map(|(name, kind, alternate)| Step::Declare(name, kind, alternate)),
        1 => (0usize..3).prop_map(Step::Delete),
        8 => (0usize..3, 0usize..3, key(), prop::option::of((any::<bool>(), pairs())))
            .prop_map(|(exchange, queue, key, rule)| Step::Bind(exchange, queue, key, rule)),
        2 => (0usize..3, 0usize..3, key()).prop_map(|(exchange, queue, key)| Step::Unbind(exchange, queue, key)),
        8 => (prop::option::weighted(0.9, 0usize..3), "([ab]\\.){0,2}[ab]?", pairs(), 0u8..=9)
            .prop_map(|(exchange, key, headers, priority)| Step::PublishExchange(exchange, key, headers, priority)),
        3 => (0usize..2, 0u8..2, 0u64..300).prop_map(|(topic, key, ms)| Step::TopicOnce(topic, key, ms)),
        5 => (prop::option::weighted(0.8, 0usize..3), "([ab]\\.){0,1}[ab]", 0u8..2, 0u64..300)
            .prop_map(|(exchange, routing_key, key, ms)| Step::ExchangeOnce(exchange, routing_key, key, ms)),
        2 => (0usize..3, prop::option::of(900u64..3_000)).prop_map(|(queue, ttl)| Step::Ttl(queue, ttl)),
        2 => prop_oneof![Just(usize::MAX), 0usize..4].prop_map(Step::Expire),
        4 => any::<Index>().prop_map(Step::Ack),
        2 => (0u64..100).prop_map(Step::Pass),
        1 => Just(Step::FailOver),
    ]
}

struct Binding {
    queue: &'static str,
    key: String,
    rule: (bool, Vec<(u8, u8)>),
}

struct Exchange {
    name: &'static str,
    kind: ExchangeKind,
    alternate: Option<&'static str>,
    bindings: Vec<Binding>,
}

struct Subscription {
    topic: &'static str,
    id: &'static str,
    attached: Millis,
}

fn matches(pattern: &[&str], key: &[&str]) -> bool {
    match (pattern.split_first(), key.split_first()) {
        (None, None) => true,
        (Some((&"#", rest)), None) => matches(rest, key),
        (Some((&"#", rest)), Some((_, fewer))) => matches(rest, key) || matches(pattern, fewer),
        (Some((word, rest)), Some((same, fewer))) => (*word == "*" || word == same) && matches(rest, fewer),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

impl Exchange {
    fn chooses(&self, binding: &Binding, key: &str, headers: &[(u8, u8)]) -> bool {
        let words = |key: &str| key.split('.').map(str::to_owned).collect::<Vec<_>>();
        let (pattern, key_words) = (words(&binding.key), words(key));
        let last = |of: &[(u8, u8)], key| {
            of.iter()
                .rev()
                .find(|(there, _)| *there == key)
                .map(|(_, value)| *value)
        };
        let (all, pairs) = &binding.rule;
        let mut there = pairs.iter().map(|(key, _)| last(headers, *key) == last(pairs, *key));
        match self.kind {
            ExchangeKind::Direct => binding.key == key,
            ExchangeKind::Fanout => true,
            ExchangeKind::Topic => matches(
                &pattern.iter().map(String::as_str).collect::<Vec<_>>(),
                &key_words.iter().map(String::as_str).collect::<Vec<_>>(),
            ),
            ExchangeKind::Headers if pairs.is_empty() => true,
            ExchangeKind::Headers if *all => there.all(|there| there),
            ExchangeKind::Headers => there.any(|there| there),
        }
    }
}

/// What was answered first, and until when that is remembered.
#[derive(Debug, Clone, Copy)]
struct First {
    id: u8,
    queues: u32,
    until: Millis,
}

struct World {
    nodes: Nodes,
    model: Model,
    subscriptions: Vec<Subscription>,
    exchanges: Vec<Exchange>,
    /// By exchange, or nothing for a topic; name or routing key; and key.
    keys: BTreeMap<(Option<String>, String, u8), First>,
    ids: u8,
    ttls: BTreeMap<&'static str, u64>,
}

/// Headers as text; of a key given twice the last counts.
fn text(pairs: &[(u8, u8)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

fn rule(rule: &(bool, Vec<(u8, u8)>)) -> HeaderRule {
    let pairs = text(&rule.1);
    HeaderRule::new(rule.0, pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())))
}

impl World {
    fn new() -> Self {
        Self {
            nodes: Nodes::new(),
            model: Model::default(),
            subscriptions: Vec::new(),
            exchanges: Vec::new(),
            keys: BTreeMap::new(),
            ids: 0,
            ttls: BTreeMap::new(),
        }
    }

    fn apply(&mut self, command: &[u8]) -> Outcome {
        self.nodes.apply(command).0
    }

    fn queue(&self, name: &str) -> QueueId {
        self.nodes.plane.queue(name).unwrap()
    }

    fn append(&mut self, queue: &str, priority: u8) {
        let id = self.queue(queue);
        // Published a nanosecond after 0.
        let expires = self.ttls.get(queue).map(|ttl| Millis(1 + ttl));
        let message = Message {
            priority,
            expires,
            ..Message::default()
        };
        self.model.append(id, message, self.nodes.now);
        self.model.totals.published += 1;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::PublishTopic(topic, priorities) => self.publish_topic(TOPICS[topic], &priorities),
            Step::Attach(topic, id, create) => self.attach(TOPICS[topic], SUBSCRIPTIONS[id], create),
            Step::Remove(topic, id, ms) => self.remove(TOPICS[topic], SUBSCRIPTIONS[id], Millis(self.nodes.now.0 - ms)),
            Step::Declare(name, kind, alternate) => {
                self.declare(EXCHANGES[name], KINDS[kind], alternate.map(|name| EXCHANGES[name]));
            }
            Step::Delete(name) => {
                let outcome = self.apply(&written(|out| command::delete_exchange(out, EXCHANGES[name])));
                let there = self
                    .exchanges
                    .iter()
                    .position(|exchange| exchange.name == EXCHANGES[name]);
                let wanted = there.map_or(Outcome::Refused(RoutingRefusal::NoExchange), |at| {
                    self.exchanges.remove(at);
                    self.keys
                        .retain(|(exchange, ..), _| exchange.as_deref() != Some(EXCHANGES[name]));
                    Outcome::Done
                });
                assert_eq!(outcome, wanted);
            }
            Step::Bind(exchange, queue, key, of) => {
                self.bind(EXCHANGES[exchange], QUEUES[queue], &key, of.unwrap_or_default());
            }
            Step::Unbind(exchange, queue, key) => self.unbind(EXCHANGES[exchange], QUEUES[queue], &key),
            Step::PublishExchange(exchange, key, headers, priority) => {
                self.publish_exchange(exchange.map(|at| EXCHANGES[at]), &key, &headers, priority);
            }
            Step::TopicOnce(topic, key, ms) => self.topic_once(TOPICS[topic], key, ms),
            Step::ExchangeOnce(exchange, routing_key, key, ms) => {
                self.exchange_once(exchange.map_or("", |at| EXCHANGES[at]), &routing_key, key, ms);
            }
            Step::Ttl(queue, ttl) => self.set_ttl(QUEUES[queue], ttl),
            Step::Expire(max) => self.expire(max),
            Step::Ack(index) => {
                if !self.model.entries.is_empty() {
                    let place = index.get(&self.model.entries).place;
                    self.apply(&settle(Settle::Ack, &[place]));
                    let (done, _) = self.model.finish(&[place]);
                    self.model.totals.acked += done.len() as u64;
                }
            }
            Step::Pass(ms) => self.nodes.now = self.nodes.now.plus(ms),
            Step::FailOver => {
                self.nodes.fail_over();
                self.model.lead(self.nodes.now);
            }
        }
    }

    fn publish_topic(&mut self, topic: &'static str, priorities: &[u8]) {
        let messages: Vec<_> = priorities
            .iter()
            .map(|priority| Message {
                priority: *priority,
                due: None,
                ..Message::default()
            })
            .collect();
        let outcome = self.apply(&publish_topic(topic, &messages));
        let queues = self.backlogs(topic);
        for queue in queues.iter().filter(|_| !messages.is_empty()) {
            // In the order of publishing, whatever their priority.
            messages.iter().for_each(|_| self.append(queue, 0));
        }
        let queues = if messages.is_empty() {
            0
        } else {
            u32::try_from(queues.len()).unwrap()
        };
        assert_eq!(outcome, Outcome::PublishedTopic { queues });
    }

    fn backlogs(&self, topic: &str) -> Vec<String> {
        let of_topic = self.subscriptions.iter().filter(|there| there.topic == topic);
        of_topic.map(|there| crate::backlog_queue(topic, there.id)).collect()
    }

    /// What is remembered of a publish, and an id for a new one.
    fn first(&mut self, at: &(Option<String>, String, u8)) -> (Option<Outcome>, u8) {
        self.ids = self.ids.wrapping_add(1);
        let first = self.keys.get(at).filter(|first| first.until > self.nodes.now);
        let before = first.map(|first| Outcome::RoutedBefore {
            id: MessageId([first.id; 16]),
            queues: first.queues,
        });
        (before, self.ids)
    }

    fn keep(&mut self, at: (Option<String>, String, u8), id: u8, queues: usize, until: Millis) {
        let queues = u32::try_from(queues).unwrap();
        if until > self.nodes.now {
            self.keys.insert(at, First { id, queues, until });
        }
    }

    fn topic_once(&mut self, topic: &'static str, key: u8, ms: u64) {
        let (at, until) = ((None, topic.to_owned(), key), self.nodes.now.plus(ms));
        let (before, id) = self.first(&at);
        let outcome = self.apply(&topic_once(until, topic, &format!("k{key}"), id));
        if let Some(before) = before {
            return assert_eq!(outcome, before);
        }
        let backlogs = self.backlogs(topic);
        backlogs.iter().for_each(|queue| self.append(queue, 0));
        let queues = u32::try_from(backlogs.len()).unwrap();
        assert_eq!(outcome, Outcome::PublishedTopic { queues });
        self.keep(at, id, backlogs.len(), until);
    }

    fn exchange_once(&mut self, exchange: &str, routing_key: &str, key: u8, ms: u64) {
        let at = (Some(exchange.to_owned()), routing_key.to_owned(), key);
        let until = self.nodes.now.plus(ms);
        let (before, id) = self.first(&at);
        let command = exchange_once(until, (exchange, routing_key), &format!("k{key}"), id);
        let outcome = self.apply(&command);
        if let Some(before) = before {
            return assert_eq!(outcome, before);
        }
        let named = Some(exchange).filter(|name| !name.is_empty());
        let Some(chosen) = self.chosen(named, routing_key, &[]) else {
            return assert_eq!(outcome, Outcome::Refused(RoutingRefusal::NoExchange));
        };
        let queues = chosen.len();
        assert_eq!(outcome, Outcome::Routed { queues, full: 0 });
        chosen.iter().for_each(|queue| self.append(queue, 0));
        if queues > 0 {
            self.keep(at, id, queues, until);
        }
    }

    fn set_ttl(&mut self, queue: &'static str, ttl: Option<u64>) {
        let options = QueueOptions {
            default_ttl_ms: ttl,
            ..QueueOptions::default()
        };
        let mut which = QueueOptionSet::default();
        which.insert(QueueOption::DefaultTtl);
        let new = self.nodes.plane.queue(queue).is_none();
        let outcome = self.apply(&written(|out| match new {
            true => command::create_queue(out, queue, &options),
            false => command::change_queue(out, queue, which, &options),
        }));
        let id = self.queue(queue);
        assert_eq!(outcome, Outcome::QueueSet { queue: id, new });
        match ttl {
            Some(ttl) => self.ttls.insert(queue, ttl),
            None => self.ttls.remove(queue),
        };
    }

    fn expire(&mut self, max: usize) {
        let over = self.model.expired(self.nodes.now);
        let claimed = self.nodes.claim_expired(max, over.len());
        assert!(
            claimed.iter().all(|place| over.contains(place)),
            "{claimed:?} of {over:?}"
        );
        self.apply(&settle(Settle::Expire, &claimed));
        let (done, missing) = self.model.finish(&claimed);
        assert!(missing.is_empty());
        self.model.totals.expired += done.len() as u64;
    }

    fn attach(&mut self, topic: &'static str, id: &'static str, create: bool) {
        let outcome = self.apply(&match create {
            true => attach(topic, id),
            false => written(|out| command::attach(out, topic, id, false)),
        });
        let backlog = crate::backlog_queue(topic, id);
        let mut other = self
            .subscriptions
            .iter()
            .filter(|there| (there.topic, there.id) != (topic, id));
        let taken = other.any(|there| crate::backlog_queue(there.topic, there.id) == backlog);
        let now = self.nodes.now;
        let there = self
            .subscriptions
            .iter_mut()
            .find(|there| (there.topic, there.id) == (topic, id));
        match there {
            Some(there) => there.attached = now,
            None if !create => return assert_eq!(outcome, Outcome::Attached(None)),
            None if taken => return assert!(matches!(outcome, Outcome::Refused(_)), "{outcome:?}"),
            None => self.subscriptions.push(Subscription {
                topic,
                id,
                attached: now,
            }),
        }
        assert_eq!(outcome, Outcome::Attached(Some(self.queue(&backlog))));
    }

    fn remove(&mut self, topic: &'static str, id: &'static str, until: Millis) {
        let outcome = self.apply(&written(|out| command::remove_subscription(out, topic, id, until)));
        let is_it = |there: &Subscription| (there.topic, there.id) == (topic, id) && there.attached <= until;
        let Some(at) = self.subscriptions.iter().position(is_it) else {
            return assert_eq!(outcome, Outcome::SubscriptionRemoved(None));
        };
        self.subscriptions.remove(at);
        let queue = self.queue(&crate::backlog_queue(topic, id));
        let open = self
            .model
            .entries
            .iter_mut()
            .filter(|entry| entry.queue == queue && entry.state != State::Done);
        let removed = open.map(|entry| entry.state = State::Done).count() as u64;
        self.model.totals.purged += removed;
        assert_eq!(outcome, Outcome::SubscriptionRemoved(Some(removed)));
    }

    fn declare(&mut self, name: &'static str, kind: ExchangeKind, alternate: Option<&'static str>) {
        let outcome = self.apply(&written(|out| {
            command::declare_exchange(out, name, kind, true, alternate);
        }));
        let there = self.exchanges.iter().find(|exchange| exchange.name == name);
        let wanted = match there {
            Some(there) if there.kind != kind => Outcome::Refused(RoutingRefusal::OtherKind(there.kind)),
            Some(_) => Outcome::ExchangeDeclared(false),
            None => Outcome::ExchangeDeclared(true),
        };
        assert_eq!(outcome, wanted);
        if there.is_none() {
            self.exchanges.push(Exchange {
                name,
                kind,
                alternate,
                bindings: Vec::new(),
            });
        }
    }

    fn bind(&mut self, exchange: &str, queue: &'static str, key: &str, of: (bool, Vec<(u8, u8)>)) {
        let written_rule = rule(&of);
        let outcome = self.apply(&written(|out| command::bind(out, exchange, queue, key, &written_rule)));
        let Some(exchange) = self.exchanges.iter_mut().find(|there| there.name == exchange) else {
            return assert_eq!(outcome, Outcome::Refused(RoutingRefusal::NoExchange));
        };
        let headers = exchange.kind == ExchangeKind::Headers;
        let is_it = |there: &Binding| {
            there.queue == queue && there.key == key && (!headers || rule(&there.rule) == written_rule)
        };
        assert_eq!(outcome, Outcome::Bound(!exchange.bindings.iter().any(is_it)));
        if outcome == Outcome::Bound(true) {
            exchange.bindings.push(Binding {
                queue,
                key: key.to_owned(),
                rule: of,
            });
        }
    }

    fn unbind(&mut self, exchange: &str, queue: &str, key: &str) {
        let outcome = self.apply(&written(|out| command::unbind(out, exchange, queue, key)));
        let Some(exchange) = self.exchanges.iter_mut().find(|there| there.name == exchange) else {
            return assert_eq!(outcome, Outcome::Refused(RoutingRefusal::NoExchange));
        };
        let before = exchange.bindings.len();
        exchange
            .bindings
            .retain(|there| there.queue != queue || there.key != key);
        assert_eq!(outcome, Outcome::Unbound(before - exchange.bindings.len()));
    }

    fn publish_exchange(&mut self, exchange: Option<&str>, key: &str, headers: &[(u8, u8)], priority: u8) {
        let pairs = text(headers);
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        let outcome = self.apply(&publish_exchange(exchange.unwrap_or_default(), key, &pairs, priority));
        let Some(wanted) = self.chosen(exchange, key, headers) else {
            return assert_eq!(outcome, Outcome::Refused(RoutingRefusal::NoExchange));
        };
        assert_eq!(
            outcome,
            Outcome::Routed {
                queues: wanted.len(),
                full: 0
            }
        );
        wanted.iter().for_each(|queue| self.append(queue, priority));
    }

    /// The queues that get a message; `None` if there is no such exchange.
    fn chosen(&self, exchange: Option<&str>, key: &str, headers: &[(u8, u8)]) -> Option<BTreeSet<String>> {
        let Some(name) = exchange else {
            return Some(BTreeSet::from([key.to_owned()]));
        };
        let find = |name| self.exchanges.iter().find(|there| there.name == name);
        let mut at = find(name)?;
        let mut chosen = BTreeSet::new();
        // Three exchanges: after so many, they lead in a circle.
        for _ in 0..3 {
            let bindings = at.bindings.iter().filter(|binding| at.chooses(binding, key, headers));
            chosen.extend(bindings.map(|binding| binding.queue.to_owned()));
            match at.alternate.and_then(find).filter(|_| chosen.is_empty()) {
                Some(alternate) => at = alternate,
                None => break,
            }
        }
        Some(chosen)
    }

    fn check(&self) {
        self.nodes.check();
        assert_eq!(self.nodes.plane.totals(), self.model.totals);
        assert_eq!(self.nodes.plane.machine().open_count(), self.model.open_count());
        let known = self.keys.values().filter(|first| first.until > self.nodes.now).count();
        assert!(self.nodes.plane.machine().keys_remembered() >= known);
        for (_, id, stats) in self.nodes.plane.queues() {
            assert_eq!(stats, self.model.stats(id));
            assert_eq!(self.nodes.peek(id, 1_000), self.model.ready(id));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn routing_does_what_the_model_does(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            world.check();
        }
    }
}
