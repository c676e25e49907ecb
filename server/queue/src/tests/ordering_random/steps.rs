//! What happens, and how often.

use proptest::prelude::*;
use proptest::sample::Index;

use super::KEYS;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Keys, and times to live.
    Publish(Vec<(usize, Option<u64>)>),
    Lease {
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
    Release(Index),
    ReleaseConsumer(u64),
    Pass(u64),
    /// Messages that are over are claimed, so many at most.
    ClaimExpired(usize),
    BeginPurge,
    EndPurge(bool),
    /// What an earlier leader had proposed for a message that it had handed out.
    Foreign(How, Index),
    /// With a time to live.
    Redrive(Index, Option<u64>),
    Lead,
    FailOver,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum How {
    Ack,
    Expire,
    Fail(u64),
    DeadLetter,
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let how = || {
        prop_oneof![
            4 => Just(How::Ack),
            1 => Just(How::Expire),
            3 => (0u64..200).prop_map(How::Fail),
            1 => Just(How::DeadLetter),
        ]
    };
    let ttl = || prop::option::weighted(0.3, 0u64..300);
    prop_oneof![
        6 => prop::collection::vec((0..KEYS.len(), ttl()), 1..8).prop_map(Step::Publish),
        8 => (0u64..3, 0usize..9, 0u64..300).prop_map(|(consumer, max, ms)| Step::Lease { consumer, max, ms }),
        12 => any::<(Index, bool)>().prop_map(|(delivery, by_place)| Step::Claim(delivery, by_place)),
        2 => any::<Index>().prop_map(Step::ClaimAny),
        10 => (how(), 1usize..5).prop_map(|(how, count)| Step::Settle(how, count)),
        2 => any::<Index>().prop_map(Step::Unclaim),
        2 => any::<Index>().prop_map(Step::Release),
        1 => (0u64..3).prop_map(Step::ReleaseConsumer),
        5 => (0u64..150).prop_map(Step::Pass),
        4 => prop_oneof![Just(usize::MAX), 0usize..4].prop_map(Step::ClaimExpired),
        1 => Just(Step::BeginPurge),
        2 => any::<bool>().prop_map(Step::EndPurge),
        1 => (how(), any::<Index>()).prop_map(|(how, message)| Step::Foreign(how, message)),
        1 => (any::<Index>(), ttl()).prop_map(|(dead, ttl)| Step::Redrive(dead, ttl)),
        1 => Just(Step::Lead),
        1 => Just(Step::FailOver),
    ]
}
