//! What a message costs in the queue plane, on one core: `cargo run --release -p boltq-queue --example cost`.
//!
//! Every figure is the median of five rounds, in nanoseconds per message, for publish and for lease, claim and
//! acknowledgement together. Nothing is stored or sent. Below it, what ten million delayed messages take, measured once.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a program that measures and prints"
)]

use boltq_core::{Applied, Millis, RecordBuilder, StateMachine};
use boltq_queue::command::{PublishWriter, Settle, SettleWriter};
use boltq_queue::{ConsumerId, Handle, Leased, Listing, Machine, Plane, Settings};
use bytes::BytesMut;

const MESSAGES: usize = 256_000;
const NOW: Millis = Millis(1_000_000);

const SETTINGS: Settings = Settings {
    max_retry: 5,
    backoff_first_ms: 100,
    backoff_max_ms: 30_000,
    ack_timeout_ms: 30_000,
    dedup_ttl_ms: 600_000,
    dedup_keys_max: 1_000,
};

struct Shape {
    name: &'static str,
    /// Messages per lease call and per acknowledgement command.
    batch: usize,
    /// Batches that are leased before the first of them is acknowledged.
    outstanding: usize,
    shuffle: bool,
    priorities: u8,
}

const SHAPES: [Shape; 6] = [
    shape("batches of 128", 128, 1),
    shape("batches of 128, 16 outstanding", 128, 16),
    shape("one by one", 1, 1),
    shape("one by one, 10,000 outstanding", 1, 10_000),
    Shape {
        shuffle: true,
        ..shape("batches of 128, 16 outstanding, settled in any order", 128, 16)
    },
    Shape {
        priorities: 10,
        ..shape("batches of 128, all priorities", 128, 1)
    },
];

const fn shape(name: &'static str, batch: usize, outstanding: usize) -> Shape {
    Shape {
        name,
        batch,
        outstanding,
        shuffle: false,
        priorities: 1,
    }
}

fn main() {
    println!("{:<55} {:>8} {:>18}", "ns per message", "publish", "lease+claim+ack");
    for shape in &SHAPES {
        let mut rounds: Vec<_> = (0..5).map(|_| round(shape)).collect();
        let mut median = |part: fn(&(f64, f64)) -> f64| {
            rounds.sort_by(|a, b| part(a).total_cmp(&part(b)));
            part(&rounds[2])
        };
        let (publish, consume) = (median(|round| round.0), median(|round| round.1));
        println!("{:<55} {publish:>8.1} {consume:>18.1}", shape.name);
    }
    delayed();
}

/// Ten million messages whose due times lie within a year, in no order.
#[allow(clippy::disallowed_methods, reason = "measures")]
fn delayed() {
    const DELAYED: u64 = 10_000_000;
    const BATCH: u64 = 1_000;
    const YEAR_MS: u64 = 365 * 86_400_000;
    let mut plane = Plane::new(Machine::default(), SETTINGS);
    plane.lead(boltq_core::Term(1), NOW);
    let mut random = 1u64;
    let mut due = || {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        NOW.plus(1 + (random >> 20) % YEAR_MS)
    };
    let mut published = std::time::Duration::ZERO;
    for _ in 0..DELAYED / BATCH {
        let mut out = BytesMut::new();
        let writer = PublishWriter::begin(&mut out, "jobs");
        for _ in 0..BATCH {
            let builder = RecordBuilder {
                due: Some(due()),
                ..builder(0, &[7; 32])
            };
            builder.write(std::iter::empty(), &mut out);
        }
        writer.finish(&mut out, u32::try_from(BATCH).unwrap());
        let start = std::time::Instant::now();
        plane.apply(NOW, &out, 0, &mut Applied::default()).unwrap();
        published += start.elapsed();
    }
    println!("\n{DELAYED} delayed messages");
    println!(
        "publish       {:>8.1} ns each",
        published.as_secs_f64() * 1e9 / DELAYED as f64
    );
    let start = std::time::Instant::now();
    let captured = plane.machine().capture();
    println!("capture       {:>8.2} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = std::time::Instant::now();
    let mut state = BytesMut::new();
    captured.write(&mut state);
    drop(captured);
    println!(
        "write a state {:>8.1} ms, {} bytes",
        start.elapsed().as_secs_f64() * 1e3,
        state.len()
    );
    let start = std::time::Instant::now();
    let machine = Machine::restore(&state).unwrap();
    println!("read it       {:>8.1} ms", start.elapsed().as_secs_f64() * 1e3);
    for (what, now) in [("none is due", NOW), ("all are due", NOW.plus(2 * YEAR_MS))] {
        let mut plane = Plane::new(Machine::restore(&state).unwrap(), SETTINGS);
        let ms_since = |start: std::time::Instant| start.elapsed().as_secs_f64() * 1e3;
        let start = std::time::Instant::now();
        plane.lead(boltq_core::Term(2), now);
        println!("lead, {what} {:>6.1} ms", ms_since(start));
        let (start, mut longest) = (std::time::Instant::now(), 0f64);
        while plane.next_tick().is_some_and(|next| next <= now) {
            let turn = std::time::Instant::now();
            plane.tick(now, &mut Vec::new(), 1_000);
            longest = longest.max(ms_since(turn));
        }
        println!(
            "  until all are ready {:>6.1} ms, the longest turn {longest:.1} ms",
            ms_since(start)
        );
    }
    drop(machine);
    let queue = plane.queue("jobs").unwrap();
    let start = std::time::Instant::now();
    let mut listing = Listing::new(None, 1_000);
    while plane.list_scheduled(queue, &mut listing) {}
    println!("list a page   {:>8.1} ms", start.elapsed().as_secs_f64() * 1e3);
    let start = std::time::Instant::now();
    let until = NOW.plus(YEAR_MS / 10);
    while plane.next_tick().is_some_and(|next| next <= until) {
        let now = plane.next_tick().unwrap();
        plane.tick(now, &mut Vec::new(), 1_000);
    }
    let woken = plane.stats(queue).unwrap().ready;
    let each = start.elapsed().as_secs_f64() * 1e6 / woken as f64;
    println!("wake          {each:>8.1} us each, one by one");
}

fn builder(priority: u8, payload: &[u8]) -> RecordBuilder<'_> {
    RecordBuilder {
        json: false,
        priority,
        published_ns: 1,
        expires: None,
        due: None,
        ordering_key: "",
        id: None,
        payload,
    }
}

fn publish_command(shape: &Shape) -> BytesMut {
    let mut out = BytesMut::new();
    let writer = PublishWriter::begin(&mut out, "jobs");
    for n in 0..shape.batch {
        let priority = u8::try_from(n % usize::from(shape.priorities)).unwrap();
        builder(priority, &[7; 256]).write(std::iter::empty(), &mut out);
    }
    writer.finish(&mut out, u32::try_from(shape.batch).unwrap());
    out
}

#[allow(clippy::disallowed_methods, reason = "measures")]
fn round(shape: &Shape) -> (f64, f64) {
    let mut plane = Plane::new(Machine::default(), SETTINGS);
    plane.lead(boltq_core::Term(1), NOW);
    let command = publish_command(shape);
    let mut applied = Applied::default();
    let start = std::time::Instant::now();
    for _ in 0..MESSAGES / shape.batch {
        plane.apply(NOW, &command, 0, &mut applied).unwrap();
        applied.storage.clear();
    }
    let published = start.elapsed();
    let start = std::time::Instant::now();
    consume(&mut plane, shape);
    let consumed = start.elapsed();
    let per_message =
        |time: std::time::Duration| time.as_secs_f64() * 1e9 / f64::from(u32::try_from(MESSAGES).unwrap());
    (per_message(published), per_message(consumed))
}

fn consume(plane: &mut Plane, shape: &Shape) {
    let queue = plane.queue("jobs").unwrap();
    let mut leased: Vec<Leased> = Vec::new();
    let mut done = 0;
    let mut random = 1u64;
    while done < MESSAGES {
        while leased.len() < shape.batch * shape.outstanding && done + leased.len() < MESSAGES {
            plane.lease(queue, ConsumerId(1), shape.batch, 30_000, NOW, &mut leased);
        }
        if shape.shuffle {
            for at in 1..leased.len() {
                random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                leased.swap(at, usize::try_from(random >> 33).unwrap() % (at + 1));
            }
        }
        for batch in leased.chunks(shape.batch) {
            done += ack(plane, batch);
        }
        leased.clear();
    }
}

fn ack(plane: &mut Plane, batch: &[Leased]) -> usize {
    let mut out = BytesMut::with_capacity(64);
    let mut writer = SettleWriter::begin(&mut out, Settle::Ack);
    for &Leased { place, lease, .. } in batch {
        let claim = plane.claim(Handle::Token { place, lease }, NOW).unwrap();
        writer.push(&mut out, claim.place);
    }
    writer.finish(&mut out);
    plane.apply(NOW, &out, 0, &mut Applied::default()).unwrap();
    batch.len()
}
