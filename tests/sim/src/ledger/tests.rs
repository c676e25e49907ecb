//! Small histories that nobody may live through, and what they become when one thing in them is in order.

use boltq_core::{Millis, Record, RecordBuilder};
use boltq_server::service::DeliveryToken;
use bytes::{Bytes, BytesMut};

use super::*;

const MINUTE_MS: u64 = 60_000;
/// Leases of the leadership begin with this one.
const FIRST: u64 = 1 << 40;

/// And those of the next one with this.
const NEXT: u64 = FIRST + 100;
const TIMES: Times = Times {
    lease_ms: MINUTE_MS,
    first_lease: FIRST,
    cluster_ms: 0,
};

/// A ledger in which message 1 was published to `q` and answered. The clocks stand.
struct History {
    ledger: Ledger,
    trace: Trace,
}

impl History {
    fn begin() -> Self {
        clocks::begin(0);
        let trace = Trace::default();
        let ledger = Ledger::new(trace.clone());
        let history = Self { ledger, trace };
        history.publish(1, Told::Done);
        history
    }

    fn publish(&self, tag: u64, told: Told) {
        let publish = Publish {
            tag,
            queue: "q".to_owned(),
            payload: tag.to_le_bytes().to_vec(),
            priority: 0,
            delay_ms: 0,
            ttl_ms: 0,
            ordering_key: String::new(),
            idempotency_key: String::new(),
            again: false,
        };
        let begun = self.ledger.begin(0, FIRST);
        let publishes = std::slice::from_ref(&publish);
        self.ledger.publishing(begun, publishes);
        let ids: &[MessageId] = if told == Told::Done { &[id(tag)] } else { &[] };
        self.ledger.published(begun, publishes, told, ids);
    }

    /// Message 1 is delivered by node 0 with this lease.
    fn deliver(&self, lease: u64) -> Begun {
        self.deliver_as(lease, 1, id(1), "q")
    }

    fn deliver_as(&self, lease: u64, tag: u64, id: MessageId, queue: &str) -> Begun {
        let first_lease = if lease < NEXT { FIRST } else { NEXT };
        let times = Times { first_lease, ..TIMES };
        let begun = self.ledger.begin(0, first_lease);
        let delivery = delivery(lease, id, &tag.to_le_bytes(), None);
        self.ledger.delivered(begun, queue, &delivery, times);
        begun
    }

    fn settle(&self, lease: u64, ack: bool, told: Told) {
        self.settle_until(lease, ack, told, FIRST);
    }

    /// The answer comes at the leadership with this first lease.
    fn settle_until(&self, lease: u64, ack: bool, told: Told, first_lease: u64) {
        let begun = self.ledger.begin(0, FIRST);
        self.ledger.lets_go(1, lease);
        if ack {
            self.ledger.acking(1);
        }
        self.ledger.settled(begun, 1, lease, ack, told, first_lease);
    }

    #[track_caller]
    fn violates(&self, checker: Checker) {
        assert_eq!(self.trace.found().map(|found| found.checker), Some(checker));
    }

    #[track_caller]
    fn is_well(&self) {
        let found = self.trace.found();
        assert!(found.is_none(), "{found:?}");
    }
}

fn id(tag: u64) -> MessageId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&tag.to_be_bytes());
    MessageId(bytes)
}

fn delivery(lease: u64, id: MessageId, payload: &[u8], expires: Option<Millis>) -> Delivery {
    let mut token = [0; 24];
    token[16..].copy_from_slice(&lease.to_be_bytes());
    let record = RecordBuilder {
        json: false,
        priority: 0,
        published_ns: 0,
        expires,
        due: None,
        ordering_key: "",
        id: None,
        payload,
    };
    let mut bytes = BytesMut::new();
    record.write(std::iter::empty(), &mut bytes);
    Delivery {
        token: DeliveryToken::from_bytes(&token).unwrap(),
        id,
        attempts: 0,
        record: Record::read(&Bytes::from(bytes)).unwrap(),
    }
}

#[test]
fn an_ordinary_life_violates_nothing() {
    let history = History::begin();
    history.deliver(FIRST + 1);
    history.settle(FIRST + 1, false, Told::Done);
    history.deliver(FIRST + 2);
    history.settle(FIRST + 2, true, Told::Done);
    history.ledger.check_loss();
    history.is_well();
    let known = history.ledger.known();
    assert_eq!((known.published, known.acked), ((1, 1), (1, 1)));
}

#[test]
fn a_message_that_nobody_got_or_removed_is_lost() {
    let history = History::begin();
    history.publish(2, Told::Unknown);
    history.ledger.check_loss();
    history.violates(Checker::NoLoss);

    // Whoever was told nothing was promised nothing.
    let history = History::begin();
    history.publish(2, Told::Unknown);
    history.publish(3, Told::Refused);
    history.ledger.acking(1);
    history.ledger.check_loss();
    history.is_well();

    let history = History::begin();
    history.ledger.purged("q", Told::Unknown, 0);
    history.ledger.check_loss();
    history.is_well();

    // One that began before the message was there does not excuse it, nor does one of another queue.
    let history = History::begin();
    history.ledger.purged("other", Told::Done, 1);
    history.ledger.check_loss();
    history.violates(Checker::NoLoss);
}

#[test]
fn what_nobody_published_so_is_a_phantom() {
    let history = History::begin();
    history.deliver_as(FIRST + 1, 2, id(2), "q");
    history.violates(Checker::NoPhantom);

    let history = History::begin();
    history.publish(2, Told::Refused);
    history.deliver_as(FIRST + 1, 2, id(2), "q");
    history.violates(Checker::NoPhantom);

    let history = History::begin();
    history.deliver_as(FIRST + 1, 1, id(1), "other");
    history.violates(Checker::NoPhantom);

    let history = History::begin();
    let begun = history.ledger.begin(0, FIRST);
    let mut payload = 1u64.to_le_bytes().to_vec();
    payload.push(0);
    let other = delivery(FIRST + 1, id(1), &payload, None);
    history.ledger.delivered(begun, "q", &other, TIMES);
    history.violates(Checker::NoPhantom);

    let history = History::begin();
    history.publish(2, Told::Unknown);
    history.deliver_as(FIRST + 1, 2, id(2), "q");
    history.is_well();
}

#[test]
fn a_message_with_two_ids_and_an_id_with_two_messages_are_found() {
    let history = History::begin();
    history.deliver_as(FIRST + 1, 1, id(2), "q");
    history.violates(Checker::OneBody);

    let history = History::begin();
    history.publish(2, Told::Unknown);
    history.deliver_as(FIRST + 1, 2, id(1), "q");
    history.violates(Checker::OneBody);
}

#[test]
fn what_was_acknowledged_does_not_come_back() {
    let history = History::begin();
    history.deliver(FIRST + 1);
    history.settle(FIRST + 1, true, Told::Done);
    history.deliver(NEXT);
    history.violates(Checker::AckedStaysAcked);

    // Neither from a leader that was replaced before.
    let history = History::begin();
    history.deliver(FIRST + 1);
    history.settle(FIRST + 1, true, Told::Done);
    history.deliver(FIRST - 1);
    history.violates(Checker::AckedStaysAcked);

    let history = History::begin();
    history.deliver(FIRST + 1);
    history.settle(FIRST + 1, true, Told::Unknown);
    history.deliver(NEXT);
    history.is_well();
}

#[test]
fn a_message_has_one_holder_at_a_time() {
    let history = History::begin();
    history.deliver(FIRST + 1);
    history.deliver(FIRST + 2);
    history.violates(Checker::LeaseExclusivity);

    let history = History::begin();
    history.deliver(FIRST + 1);
    history.ledger.lets_go(1, FIRST + 1);
    history.deliver(FIRST + 1);
    history.violates(Checker::LeaseExclusivity);

    // Leases end when they are over, and with the leadership.
    let history = History::begin();
    history.deliver(FIRST + 1);
    clocks::jump(0, MINUTE_MS as i64);
    history.deliver(FIRST + 2);
    history.deliver(NEXT);
    history.is_well();
}

#[test]
fn a_lease_that_was_extended_lasts_longer() {
    let history = History::begin();
    let begun = history.deliver(FIRST + 1);
    history.ledger.extended(begun, 1, FIRST + 1, 3 * MINUTE_MS, Told::Done);
    clocks::jump(0, 2 * MINUTE_MS as i64);
    history.deliver(FIRST + 2);
    history.violates(Checker::LeaseExclusivity);
}

#[test]
fn an_old_token_settles_nothing_that_another_one_holds() {
    let settled = |told: Told, first_lease: u64| {
        let history = History::begin();
        history.deliver(FIRST + 1);
        clocks::jump(0, MINUTE_MS as i64);
        history.deliver(FIRST + 2);
        history.settle_until(FIRST + 1, true, told, first_lease);
        history
    };
    settled(Told::Done, FIRST).violates(Checker::Fencing);
    settled(Told::Refused, FIRST).is_well();
    // The other lease ended with the leadership, perhaps before this was settled.
    settled(Told::Done, NEXT).is_well();
}

#[test]
fn messages_come_when_they_are_due_and_before_they_expire() {
    let history = History::begin();
    let begun = history.ledger.begin(0, FIRST);
    let publish = Publish {
        tag: 2,
        queue: "q".to_owned(),
        payload: 2u64.to_le_bytes().to_vec(),
        priority: 0,
        delay_ms: MINUTE_MS,
        ttl_ms: 0,
        ordering_key: String::new(),
        idempotency_key: String::new(),
        again: false,
    };
    history.ledger.publishing(begun, std::slice::from_ref(&publish));
    history.ledger.published(begun, &[publish], Told::Done, &[id(2)]);
    history.deliver_as(FIRST + 1, 2, id(2), "q");
    history.violates(Checker::InTime);

    let history = History::begin();
    let begun = history.ledger.begin(0, FIRST);
    let expires = Some(Millis(clocks::read_ms(0)));
    let late = delivery(FIRST + 1, id(1), &1u64.to_le_bytes(), expires);
    history.ledger.delivered(begun, "q", &late, TIMES);
    history.violates(Checker::InTime);
}

#[test]
fn a_current_read_sees_what_was_applied_anywhere() {
    let history = History::begin();
    history.ledger.has_applied(8);
    history.ledger.has_applied(7);
    history.ledger.read(1, history.ledger.applied(), 8);
    history.is_well();
    history.ledger.read(1, history.ledger.applied(), 7);
    history.violates(Checker::CurrentReads);
}
