//! What a million of everything takes, in memory. `--nocapture` prints it.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that measures and prints"
)]
#![allow(unsafe_code, reason = "counts what is allocated")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};

use boltq_core::{Applied, Millis, RecordBuilder, StateMachine};
use boltq_stream::command::{AppendWriter, ClaimRequest, CommitWriter, CursorOf, Target};
use boltq_stream::{ClaimKey, Machine, Retention, Settings, Terms, Version};
use bytes::BytesMut;

/// Enough that what else the process has does not count.
const COUNT: u64 = 200_000;
const NOW: u64 = 1_767_225_600_000;

/// Counts what is allocated as the allocator of the server would: in its size classes.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// That of jemalloc: 8, then steps of 16 up to 128, then four steps for each doubling.
fn class(bytes: usize) -> usize {
    match bytes {
        0..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
    }
}

// SAFETY: everything is passed on to the allocator of the system.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(class(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        BYTES.fetch_sub(class(layout.size()), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

/// Bytes that each of `COUNT` steps leaves allocated.
fn each(what: &str, step: impl FnMut(u64)) -> u64 {
    let before = BYTES.load(Ordering::Relaxed);
    (0..COUNT).for_each(step);
    let bytes = (BYTES.load(Ordering::Relaxed) - before) as u64 / COUNT;
    println!("{what}: {bytes} bytes");
    bytes
}

fn append(out: &mut BytesMut, topic: &str, claim: Option<ClaimRequest>, records: u32) {
    let settings = Settings {
        partitions: 1,
        retention: Retention {
            max_age_ms: 30 * 24 * 3_600 * 1_000,
            max_bytes: 0,
        },
    };
    let writer = AppendWriter::begin(out, topic, 0, &Terms::at_home(settings), claim);
    for _ in 0..records {
        let record = RecordBuilder {
            json: false,
            priority: 0,
            published_ns: NOW * 1_000_000,
            expires: None,
            due: None,
            ordering_key: "",
            id: None,
            payload: &[7; 100],
        };
        record.write(std::iter::empty(), out);
    }
    writer.finish(out, NonZeroU32::new(records).unwrap());
}

#[test]
fn a_million_conversations_are_small() {
    let mut machine = Machine::default();
    let mut out = BytesMut::with_capacity(4_096);
    let mut applied = Applied::default();
    let mut apply = |machine: &mut Machine, write: &mut dyn FnMut(&mut BytesMut)| {
        out.clear();
        write(&mut out);
        machine.apply(Millis(NOW), &out, 0, &mut applied).unwrap();
        applied.storage.clear();
        applied.effects.clear();
    };
    // Names of 27 bytes, in no order.
    let name = |number: u64| format!("chat.direct.{:07}:{number:07}", number * 7_919_291 % 9_999_991);
    let topic = each("a topic of one partition with 3 records", |number| {
        apply(&mut machine, &mut |out| append(out, &name(number), None, 3));
    });
    let cursor = each("a position", |number| {
        let (topic, group) = (name(number), format!("user:user{number:06}"));
        let cursor = CursorOf {
            target: Target {
                topic: &topic,
                created: Version::NONE,
            },
            partition: 0,
            group: &group,
            member: "phone",
        };
        apply(&mut machine, &mut |out| {
            let mut writer = CommitWriter::begin(out, u32::MAX);
            writer.push(out, &cursor, 2);
            writer.finish(out);
        });
    });
    let claim = each("a key of an append", |number| {
        let claim = ClaimRequest {
            key: ClaimKey::of("ana", &number.to_string()),
            ttl_ms: 60_000,
            claims_max: u32::MAX,
        };
        apply(&mut machine, &mut |out| append(out, &name(0), Some(claim), 1));
    });
    assert_eq!(machine.topic_count() as u64, COUNT);
    assert_eq!(
        (machine.cursor_count() as u64, machine.claim_count() as u64),
        (COUNT, COUNT)
    );
    assert!(topic < 150 && cursor < 110 && claim < 65, "{topic}, {cursor}, {claim}");
}
