//! What happens, and how often.

use proptest::prelude::*;
use proptest::sample::Index;

use super::{CONSUMERS, managing};
use crate::{QueueOptionSet, QueueOptions};

#[derive(Debug, Clone)]
pub(super) enum Step {
    Publish(usize, Vec<(u8, Option<u64>, Option<u64>)>),
    PublishOnce {
        queue: usize,
        key: usize,
        delay: Option<u64>,
        remembered_ms: u64,
    },
    Lease {
        queue: usize,
        consumer: u64,
        max: usize,
        ms: u64,
    },
    /// A delivery, by its token or by its place.
    Claim(Index, bool),
    /// Any message, whether it was delivered or not.
    ClaimAny(Index),
    /// The command that the oldest claims were made for is applied.
    Settle(How, usize),
    Unclaim(Index),
    Extend(Index, u64),
    Release(Index),
    ReleaseConsumer(u64),
    Note(Index, u64),
    Pass(u64),
    /// Messages that are over are claimed, so many at most.
    ClaimExpired(usize),
    /// Any message, to be cancelled or rescheduled.
    ClaimScheduled(Index),
    EndScheduled(HowScheduled),
    ForeignScheduled(HowScheduled, Index),
    BeginPurge(usize),
    EndPurge(bool),
    /// What an earlier leader had proposed is applied.
    Foreign(How, Vec<Index>),
    /// Some settings of a queue change.
    Change(usize, QueueOptionSet, QueueOptions),
    /// A queue is deleted, and there is a new one of its name.
    Renew(usize),
    Lead,
    FailOver,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Ack,
    Expire,
    Fail(u64),
    DeadLetter,
    Purge,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum HowScheduled {
    Cancel,
    Reschedule(u64),
    /// The claim is given back.
    Not,
}

fn how_scheduled() -> impl Strategy<Value = HowScheduled> {
    prop_oneof![
        2 => Just(HowScheduled::Cancel),
        3 => (0u64..300).prop_map(HowScheduled::Reschedule),
        1 => Just(HowScheduled::Not),
    ]
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![
        4 => Just(How::Ack),
        1 => Just(How::Expire),
        3 => (0u64..200).prop_map(How::Fail),
        1 => Just(How::DeadLetter),
        1 => Just(How::Purge),
    ]
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let priority = prop_oneof![3 => Just(0u8), 1 => 0u8..=9];
    let message = (
        priority,
        prop::option::weighted(0.25, 0u64..300),
        prop::option::weighted(0.25, 0u64..300),
    );
    let messages = prop::collection::vec(message, 0..8);
    let some = prop::collection::vec(any::<Index>(), 1..4);
    prop_oneof![
        8 => (0usize..3, messages).prop_map(|(queue, messages)| Step::Publish(queue, messages)),
        4 => (0usize..3, 0usize..4, prop::option::weighted(0.25, 0u64..300), 0u64..400)
            .prop_map(|(queue, key, delay, remembered_ms)| Step::PublishOnce { queue, key, delay, remembered_ms }),
        10 => (0usize..3, 0..CONSUMERS, 0usize..12, 0u64..300)
            .prop_map(|(queue, consumer, max, ms)| Step::Lease { queue, consumer, max, ms }),
        14 => any::<(Index, bool)>().prop_map(|(delivery, by_place)| Step::Claim(delivery, by_place)),
        2 => any::<Index>().prop_map(Step::ClaimAny),
        8 => (how(), 1usize..6).prop_map(|(how, count)| Step::Settle(how, count)),
        2 => any::<Index>().prop_map(Step::Unclaim),
        2 => (any::<Index>(), 0u64..300).prop_map(|(delivery, ms)| Step::Extend(delivery, ms)),
        3 => any::<Index>().prop_map(Step::Release),
        1 => (0..CONSUMERS).prop_map(Step::ReleaseConsumer),
        2 => (any::<Index>(), 0u64..300).prop_map(|(delivery, ms)| Step::Note(delivery, ms)),
        6 => (0u64..150).prop_map(Step::Pass),
        3 => prop_oneof![Just(usize::MAX), 0usize..4].prop_map(Step::ClaimExpired),
        4 => any::<Index>().prop_map(Step::ClaimScheduled),
        3 => how_scheduled().prop_map(Step::EndScheduled),
        1 => (how_scheduled(), any::<Index>()).prop_map(|(how, message)| Step::ForeignScheduled(how, message)),
        2 => (0usize..3).prop_map(Step::BeginPurge),
        2 => any::<bool>().prop_map(Step::EndPurge),
        1 => (how(), some).prop_map(|(how, messages)| Step::Foreign(how, messages)),
        2 => managing::change(),
        1 => (0usize..3).prop_map(Step::Renew),
        1 => Just(Step::Lead),
        1 => Just(Step::FailOver),
    ]
}
