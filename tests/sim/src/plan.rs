//! What a seed stands for: the cluster, its settings, the load, and the faults.

use crate::clocks::NODES_MAX;
use crate::faults::{self, Event};
use crate::random::Random;

/// What is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// Nothing.
    Nothing,
    /// Entries are acknowledged before they are synced.
    AcksBeforeSync,
    /// Syncs of the write-ahead log are said to be done, and do nothing: the broker is right, and its disk lies.
    DiskLies,
    /// A follower does not cut off what its leader does not have.
    KeepsDivergentTail,
    /// A learner counts for the majority.
    CountsLearner,
    /// Of the messages that a call takes, one is acknowledged and given to nobody.
    LosesDeliveries,
    /// Publishers of some messages that are stored are told that they are refused.
    RefusesWhatItStores,
    /// Each publish is carried out twice.
    PublishesTwice,
    /// Acknowledgements are answered and not carried out.
    AcksWithoutDoing,
    /// What a call takes is delivered twice.
    DeliversTwice,
    /// What settles a lease settles any later one of the message, too.
    IgnoresTokens,
    /// A purge is said to have removed more than it has.
    MiscountsPurges,
    /// A replica goes back to an earlier state.
    ForgetsApplied,
    /// A read that has to be current is answered without asking the leader.
    ReadsStale,
    /// Nodes do not find each other again.
    StaysCut,
    /// The idempotency key is left out when something is published again.
    ForgetsKeys,
    /// What goes to several queues is published to one of them.
    LeavesOutQueues,
    /// What goes to one queue is published to all.
    RoutesElsewhere,
    /// Each increment is carried out twice.
    CountsTwice,
}

impl Broken {
    /// All ways, with their names.
    pub const ALL: [(&'static str, Self); 18] = [
        ("acks-before-sync", Self::AcksBeforeSync),
        ("disk-lies", Self::DiskLies),
        ("keeps-divergent-tail", Self::KeepsDivergentTail),
        ("counts-learner", Self::CountsLearner),
        ("loses-deliveries", Self::LosesDeliveries),
        ("refuses-what-it-stores", Self::RefusesWhatItStores),
        ("publishes-twice", Self::PublishesTwice),
        ("acks-without-doing", Self::AcksWithoutDoing),
        ("delivers-twice", Self::DeliversTwice),
        ("ignores-tokens", Self::IgnoresTokens),
        ("miscounts-purges", Self::MiscountsPurges),
        ("forgets-applied", Self::ForgetsApplied),
        ("reads-stale", Self::ReadsStale),
        ("stays-cut", Self::StaysCut),
        ("forgets-keys", Self::ForgetsKeys),
        ("leaves-out-queues", Self::LeavesOutQueues),
        ("routes-elsewhere", Self::RoutesElsewhere),
        ("counts-twice", Self::CountsTwice),
    ];
}

/// Everything that a seed decides before the run; the run draws on from `random`.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) voters: usize,
    pub(crate) learners: usize,
    pub(crate) clients: usize,
    /// Length of the load, in ms of virtual time.
    pub(crate) load_ms: u64,
    pub(crate) queues: u64,
    pub(crate) payload_max: u64,
    pub(crate) pace_ms: u64,
    pub(crate) log: LogPlan,
    pub(crate) events: Vec<Event>,
    pub(crate) random: Random,
}

/// Settings of logs and checkpoints.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogPlan {
    pub(crate) cache_bytes: u64,
    pub(crate) compaction_threshold: u64,
    pub(crate) checkpoint_entries: u64,
    pub(crate) checkpoint_bytes: u64,
    pub(crate) kept_bytes: u64,
}

impl Plan {
    pub(crate) fn draw(seed: u64, broken: Broken) -> Self {
        let mut random = Random::new(seed);
        let voters = if random.permille(200) { 5 } else { 3 };
        let learners = usize::from(broken == Broken::CountsLearner || random.permille(300));
        let learners = learners.min(NODES_MAX - voters);
        let long = random.permille(100);
        let load_ms = if long {
            random.between(4_000, 10_000)
        } else {
            random.between(2_000, 4_500)
        };
        let log = LogPlan {
            cache_bytes: random.pick(&[0, 16 << 10, 1 << 20]),
            compaction_threshold: random.pick(&[128 << 10, 512 << 10]),
            checkpoint_entries: random.pick(&[5, 20, 100]),
            checkpoint_bytes: random.pick(&[8 << 10, 256 << 10]),
            kept_bytes: random.pick(&[0, 0, 2 << 10, 64 << 10]),
        };
        Self {
            voters,
            learners,
            clients: usize::try_from(random.between(2, 5)).unwrap_or(2),
            load_ms,
            queues: random.between(1, 4),
            payload_max: random.pick(&[40, 400, 3_000]),
            pace_ms: random.pick(&[30, 60, 150]),
            log,
            events: faults::draw(&mut random.fork(), voters, learners, load_ms),
            random,
        }
    }

    pub(crate) fn nodes(&self) -> usize {
        self.voters + self.learners
    }
}
