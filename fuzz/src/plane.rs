//! Queue planes that anybody's bytes led to.

use std::sync::LazyLock;

use boltq_core::{Applied, DecodeError, Millis, RecordHead, StateMachine, StorageEffect};
use boltq_queue::command::{self, FailWriter, Settle, SettleWriter};
use boltq_queue::{
    Claim, ClaimError, ConsumerId, Effect, Handle, Listing, Machine, Outcome, Plane, QueueId, Settings, Totals,
};
use bytes::BytesMut;

const SETTINGS: Settings = Settings {
    max_retry: 5,
    backoff_first_ms: 100,
    backoff_max_ms: 30_000,
    ack_timeout_ms: 30_000,
    dedup_ttl_ms: 600_000,
    dedup_keys_max: 1_000,
};
const CONSUMER: ConsumerId = ConsumerId(7);
/// Queues of the recorded snapshot, and one more.
const QUEUES: u32 = 4;
const LEASED_MAX: usize = 16;
/// Half of what a snapshot may say.
const TOTAL_MAX: u64 = 1 << 61;

/// The recorded snapshot: three queues with messages of every kind.
pub static RECORDED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let text = include_str!("../../tests/vectors/queue/snapshot-v1.txt").trim();
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
});

/// A plane that does not lead.
pub fn plane(machine: Machine) -> Plane {
    Plane::new(machine, SETTINGS)
}

/// Applies a command of `entry`, and checks what has to be true whatever it is: a command that is refused changes nothing,
/// and records that were placed are where they are said to be.
pub fn apply(
    plane: &mut Plane,
    time: Millis,
    entry: &[u8],
    command: &[u8],
    offset: u32,
) -> Result<Outcome, DecodeError> {
    let before = plane.machine().snapshot();
    let mut applied: Applied<Effect> = Applied::default();
    let outcome = plane.apply(time, command, offset, &mut applied);
    if outcome.is_err() {
        assert_eq!(
            plane.machine().snapshot(),
            before,
            "a refused command changed something"
        );
        assert!(applied.storage.is_empty() && applied.effects.is_empty());
    }
    for effect in applied.storage {
        check_effect(effect, entry);
    }
    for effect in applied.effects {
        check_listeners(effect, entry);
    }
    outcome
}

/// What listeners of a topic are told is in the entry.
fn check_listeners(effect: Effect, entry: &[u8]) {
    if let Effect::TopicPublished {
        topic,
        topic_bytes,
        count,
        records,
        records_bytes,
    } = effect
    {
        let part = |at: u32, bytes: u32| &entry[at as usize..][..bytes as usize];
        assert!(std::str::from_utf8(part(topic, topic_bytes)).is_ok());
        let mut left = part(records, records_bytes);
        for _ in 0..count {
            let head = RecordHead::read(left).expect("a record that listeners are told");
            left = &left[head.bytes..];
        }
        assert!(count > 0 && left.is_empty(), "records do not fill their place");
    }
}

fn check_effect(effect: StorageEffect, entry: &[u8]) {
    match effect {
        StorageEffect::Placed {
            count, offset, bytes, ..
        } => {
            let (start, end) = (offset as usize, offset as usize + bytes as usize);
            let mut records = &entry[start..end];
            for _ in 0..count {
                let head = RecordHead::read(records).expect("a record that was placed");
                records = &records[head.bytes..];
            }
            assert!(count > 0 && records.is_empty(), "records do not fill their place");
        }
        StorageEffect::Freed { count, .. } => assert!(count > 0),
        StorageEffect::Erased { .. } => {}
    }
}

/// Leads, hands out, settles in every way, lets time pass, and checks that the state survives being written and read.
pub fn exercise(mut plane: Plane, now: Millis) {
    plane.lead(boltq_core::Term(1), now);
    for queue in (0..QUEUES).map(QueueId) {
        settle(&mut plane, queue, now);
        let runs = plane.begin_purge(queue);
        run(&mut plane, now, |out| command::purge(out, &runs));
        assert_eq!(plane.stats(queue).is_some(), plane.queue_name(queue).is_some());
        plane.peek(queue, LEASED_MAX, now, &mut Vec::new());
    }
    schedule(&mut plane, now);
    expire(&mut plane);
    let mut timed_out = Vec::new();
    plane.tick(Millis::MAX, &mut timed_out, LEASED_MAX);
    let _ = plane.next_tick();
    plane.take_woken(&mut Vec::new());
    plane.release_consumer(CONSUMER, now);
    plane.follow();
    for queue in (0..QUEUES).map(QueueId) {
        plane.peek(queue, LEASED_MAX, now, &mut Vec::new());
    }
    if counts_too_much(plane.totals()) {
        return;
    }
    let snapshot = plane.machine().snapshot();
    let restored = Machine::restore(&snapshot).expect("a snapshot that was written");
    assert_eq!(restored.snapshot(), snapshot);
}

/// Lists what is not due, and cancels or reschedules it.
fn schedule(plane: &mut Plane, now: Millis) {
    for queue in (0..QUEUES).map(QueueId) {
        let mut listing = Listing::new(None, LEASED_MAX);
        while plane.list_scheduled(queue, &mut listing) {}
        let (listed, _) = listing.finish(queue);
        assert!(listed.is_sorted_by_key(|scheduled| (scheduled.due, scheduled.place.seq)));
        for (position, scheduled) in listed.into_iter().enumerate() {
            let place = scheduled.place;
            assert_eq!(plane.due(place), Some(scheduled.due));
            plane.claim_scheduled(place).expect("a message that is not due");
            match position % 3 {
                0 => plane.unclaim(place, now),
                1 => run(plane, now, |out| command::cancel(out, &[place])),
                _ => run(plane, now, |out| {
                    command::reschedule(out, place, now.plus(position as u64))
                }),
            }
        }
    }
}

/// Expires what is over at any time, all of it.
fn expire(plane: &mut Plane) {
    let mut expired = Vec::new();
    plane.claim_expired(Millis::MAX, usize::MAX, &mut expired);
    let now = plane.machine().now();
    run(plane, now, |out| {
        let mut writer = SettleWriter::begin(out, Settle::Expire);
        expired.iter().for_each(|place| writer.push(out, *place));
        writer.finish(out);
    });
}

/// Whether a total was forged to be where a few more are not read any more. No group gets there.
fn counts_too_much(totals: Totals) -> bool {
    let Totals {
        published,
        acked,
        nacked,
        expired,
        dead_lettered,
        purged,
        dropped,
        rejected,
    } = totals;
    let all = [
        published,
        acked,
        nacked,
        expired,
        dead_lettered,
        purged,
        dropped,
        rejected,
    ];
    all.iter().any(|total| *total > TOTAL_MAX)
}

/// The claim of a lease that is held, unless the time to live of the message is over.
fn claim(plane: &mut Plane, handle: Handle, now: Millis) -> Option<Claim> {
    match plane.claim(handle, now) {
        Ok(claim) => Some(claim),
        Err(ClaimError::Expired(_)) => None,
        Err(error) => panic!("a lease that is held: {error:?}"),
    }
}

fn settle(plane: &mut Plane, queue: QueueId, now: Millis) {
    let mut leased = Vec::new();
    plane.lease(queue, CONSUMER, LEASED_MAX, 1_000, now, &mut leased);
    for (position, leased) in leased.into_iter().enumerate() {
        let place = leased.place;
        let token = Handle::Token {
            place,
            lease: leased.lease,
        };
        plane.extend(token, 2_000, now).expect("a lease that was just given");
        match position % 4 {
            0 => plane.release(place, now),
            1 => drop(claim(plane, token, now)),
            2 => {
                if claim(plane, token, now).is_none() {
                    continue;
                }
                run(plane, now, |out| {
                    let mut writer = SettleWriter::begin(out, Settle::Ack);
                    writer.push(out, place);
                    writer.finish(out);
                });
            }
            _ => {
                let Some(claim) = claim(plane, Handle::Place(place), now) else {
                    continue;
                };
                let settings = plane.settings(claim.queue);
                let not_before = settings.not_before(claim.attempts.saturating_add(1), now, 0);
                run(plane, now, |out| {
                    let mut writer = FailWriter::begin(out);
                    writer.push(out, place, not_before);
                    writer.finish(out);
                });
            }
        }
    }
}

fn run(plane: &mut Plane, now: Millis, write: impl FnOnce(&mut BytesMut)) {
    let mut out = BytesMut::new();
    write(&mut out);
    apply(plane, now, &out, &out, 0).expect("a command that was just written");
}
