//! The clocks of the nodes: virtual time, each with an offset of its own that jumps.
//!
//! The broker takes its clock as a function, so there is one function for each node, and what it looks into belongs to the
//! thread: one thread runs one simulation at a time.

use std::cell::RefCell;

use boltq_core::Millis;
use boltq_server::clock::{Instant, Sources};
use tokio::time::Instant as Virtual;

use crate::random::Random;

/// Nodes of a cluster.
pub(crate) const NODES_MAX: usize = 6;
/// Unix time at which simulations begin, in ms: in 2023.
const BEGIN_MS: u64 = 1_700_000_000_000;

struct Clocks {
    begin: Virtual,
    offset_ms: [i64; NODES_MAX],
    /// The latest time that a clock has shown, in ms.
    high_ms: [u64; NODES_MAX],
    /// How often it was set back.
    set_back: [u32; NODES_MAX],
    chance: Random,
}

thread_local! {
    static CLOCKS: RefCell<Option<Clocks>> = const { RefCell::new(None) };
}

fn with<T>(work: impl FnOnce(&mut Clocks) -> T) -> T {
    CLOCKS.with_borrow_mut(|clocks| work(clocks.as_mut().expect("a simulation runs on this thread")))
}

/// Puts the clocks of this thread to the beginning.
pub(crate) fn begin(seed: u64) {
    CLOCKS.set(Some(Clocks {
        begin: Virtual::now(),
        offset_ms: [0; NODES_MAX],
        high_ms: [0; NODES_MAX],
        set_back: [0; NODES_MAX],
        chance: Random::new(seed),
    }));
}

/// Virtual time since the beginning, in ms.
pub(crate) fn elapsed_ms() -> u64 {
    with(|clocks| u64::try_from(clocks.begin.elapsed().as_millis()).unwrap_or(u64::MAX))
}

fn read_ns(node: usize) -> u64 {
    with(|clocks| {
        let elapsed = u64::try_from(clocks.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let offset = clocks.offset_ms[node] * 1_000_000;
        let now = (BEGIN_MS * 1_000_000).saturating_add_signed(offset) + elapsed;
        clocks.high_ms[node] = clocks.high_ms[node].max(now / 1_000_000);
        now
    })
}

/// What the clock of a node shows, in ms.
pub(crate) fn read_ms(node: usize) -> u64 {
    read_ns(node) / 1_000_000
}

/// The latest that the clock of a node has shown, in ms.
pub(crate) fn high_ms(node: usize) -> u64 {
    read_ns(node);
    with(|clocks| clocks.high_ms[node])
}

/// How often the clock of a node was set back.
pub(crate) fn set_back(node: usize) -> u32 {
    with(|clocks| clocks.set_back[node])
}

/// Sets a clock forward or back.
pub(crate) fn jump(node: usize, by_ms: i64) {
    read_ns(node);
    with(|clocks| {
        clocks.offset_ms[node] += by_ms;
        clocks.set_back[node] += u32::from(by_ms < 0);
    });
}

fn instant<const NODE: usize>() -> Instant {
    Instant::from_unix_ns(read_ns(NODE))
}

fn millis<const NODE: usize>() -> Millis {
    Millis(read_ms(NODE))
}

fn random() -> u64 {
    with(|clocks| clocks.chance.next())
}

/// Time and chance of a node's queue plane.
pub(crate) fn sources(node: usize) -> Sources {
    let clocks: [fn() -> Instant; NODES_MAX] = [
        instant::<0>,
        instant::<1>,
        instant::<2>,
        instant::<3>,
        instant::<4>,
        instant::<5>,
    ];
    Sources {
        clock: clocks[node],
        random,
    }
}

/// The clock for the proposals of a node.
pub(crate) fn proposal_clock(node: usize) -> fn() -> Millis {
    let clocks: [fn() -> Millis; NODES_MAX] = [
        millis::<0>,
        millis::<1>,
        millis::<2>,
        millis::<3>,
        millis::<4>,
        millis::<5>,
    ];
    clocks[node]
}
