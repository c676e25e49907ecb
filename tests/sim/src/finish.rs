//! After the faults: writes go on, all catch up, and everything is there and accounted for.

use std::sync::Arc;
use std::time::Duration;

use boltq_core::LogIndex;
use boltq_log::ReadMode;
use boltq_raft::GroupHandler;
use boltq_server::ack_level::AckLevel;
use boltq_server::service::{DEAD_LETTER_SUFFIX, Delivery, Settlement, Totals};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::cache;
use crate::cluster::Cluster;
use crate::door;
use crate::ledger::{Known, Publish, Told};
use crate::node::Node;
use crate::plan::Broken;
use crate::random::{Random, hash};
use crate::trace::{Checker, note};

/// Within this time after a majority is connected again, a write succeeds.
pub(crate) const PROGRESS_MAX: Duration = Duration::from_secs(10);
/// For the members to be what they are to be, and for all replicas to have everything.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// For everything to be delivered: delays, leases and backoffs end before that, also after clocks were set back.
const DRAIN_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
const DRAIN_BATCH: usize = 64;

impl Cluster {
    /// Ends the run.
    pub(crate) async fn finish(self: &Arc<Self>) {
        self.progresses().await;
        if !self.all_up().await && !self.trace.is_broken() {
            self.trace
                .violation(Checker::Recovery, "not all nodes come up".to_owned());
        }
        self.restore_members().await;
        self.catch_up().await;
        let early = self.forgetful().map(|node| (node.clone(), node.plane.capture()()));
        self.drain().await;
        self.catch_up().await;
        if let Some((node, early)) = early {
            let _ = node.plane.restore(&early);
            self.catch_up().await;
        }
        if let Some(leader) = self.leader().filter(|_| !self.trace.is_broken()) {
            cache::check(self, &leader).await;
        }
        if !self.trace.is_broken() {
            self.ledger.check_loss();
            self.check_totals();
        }
    }

    /// In the build in which a replica forgets, that replica.
    fn forgetful(&self) -> Option<Arc<Node>> {
        let forgets = self.kit.broken == Broken::ForgetsApplied;
        let follower = || self.nodes().into_iter().find(|node| !node.leads());
        forgets.then(follower).flatten()
    }

    /// A write succeeds in time.
    pub(crate) async fn progresses(&self) {
        let until = Instant::now() + PROGRESS_MAX;
        loop {
            if self.trace.is_broken() {
                return;
            }
            if let Some(leader) = self.leader()
                && self.probe(&leader).await == Told::Done
            {
                note!(self.trace, "writes go on");
                return;
            }
            if Instant::now() >= until {
                let what = format!("no write within {PROGRESS_MAX:?}; {}", self.states());
                return self.trace.violation(Checker::Progress, what);
            }
            sleep(POLL).await;
        }
    }

    /// As [`Cluster::progresses`], with one voter cut off, who may be the leader.
    pub(crate) async fn progresses_without(&self, random: &mut Random) {
        // Those that are down now may be needed for the majority.
        self.all_up().await;
        self.restore_members().await;
        let node = usize::try_from(random.below(self.plan.voters as u64)).unwrap_or(0);
        note!(self.trace, "all but n{node} are connected");
        let others = (0..self.plan.nodes()).filter(|other| *other != node);
        let links: Vec<_> = others.flat_map(|other| [(node, other), (other, node)]).collect();
        self.kit.net.cut(&links);
        self.progresses().await;
        self.kit.net.mend(&links);
    }

    async fn probe(&self, leader: &Node) -> Told {
        let tag = self.ledger.tag();
        let publish = Publish {
            tag,
            queue: "q0".to_owned(),
            payload: tag.to_le_bytes().to_vec(),
            priority: 0,
            delay_ms: 0,
            ttl_ms: 0,
            ordering_key: String::new(),
            idempotency_key: String::new(),
            again: false,
        };
        door::publish(self, leader, &[publish], AckLevel::Quorum).await
    }

    fn states(&self) -> String {
        let states = self.nodes().into_iter().map(|node| {
            let status = node.group.status();
            format!(
                "n{} {:?} term {} last {:?} applied {:?}",
                node.index,
                status.role,
                status.term.0,
                status.last.map(|last| last.0),
                status.applied.map(|applied| applied.0)
            )
        });
        states.collect::<Vec<_>>().join("; ")
    }

    async fn restore_members(&self) {
        let until = Instant::now() + SETTLE_MAX;
        for node in 0..self.plan.nodes() {
            while !self.trace.is_broken() && !self.take_in(node).await {
                if Instant::now() >= until {
                    let what = format!("n{node} cannot be taken in; {}", self.states());
                    return self.trace.violation(Checker::Progress, what);
                }
                sleep(POLL).await;
            }
        }
    }

    /// All replicas have applied what there is, and then their states are equal.
    async fn catch_up(&self) {
        let until = Instant::now() + SETTLE_MAX;
        while !self.trace.is_broken() && !self.even() {
            if Instant::now() >= until {
                let what = format!("replicas do not catch up; {}", self.states());
                return self.trace.violation(Checker::Progress, what);
            }
            sleep(POLL).await;
        }
        if self.trace.is_broken() {
            return;
        }
        let nodes = self.nodes();
        let states: Vec<_> = nodes
            .iter()
            .map(|node| (node.index, hash(0, &node.plane.capture()())))
            .collect();
        note!(self.trace, "states: {states:x?}");
        if let Err(why) = all_equal(&states) {
            self.trace.violation(Checker::EqualReplicas, why);
        }
    }

    fn even(&self) -> bool {
        let all: Vec<_> = self.nodes().iter().map(|node| node.group.status()).collect();
        let last: Option<LogIndex> = all.iter().filter_map(|status| status.last).max();
        all.len() == self.plan.nodes()
            && all.iter().all(|status| status.applied == last && status.last == last)
            && all.iter().filter(|status| status.leading).count() == 1
    }

    /// Takes and acknowledges everything.
    async fn drain(self: &Arc<Self>) {
        let until = Instant::now() + DRAIN_MAX;
        while !self.trace.is_broken() {
            let Some(leader) = self.leader() else {
                if Instant::now() >= until {
                    let what = format!("nobody leads; {}", self.states());
                    return self.trace.violation(Checker::Progress, what);
                }
                sleep(POLL).await;
                continue;
            };
            let open = leader.plane.with(|plane| plane.machine().open_count());
            if open == 0 {
                return;
            }
            if Instant::now() >= until {
                let what = format!(
                    "{open} messages are open, and nobody gets them: {:?}",
                    leader.queues.stats()
                );
                return self.trace.violation(Checker::Conservation, what);
            }
            let names: Vec<String> = leader
                .plane
                .with(|plane| plane.queues().map(|(name, ..)| name.to_owned()).collect());
            for queue in names {
                self.drain_queue(&leader, &queue).await;
            }
            sleep(POLL).await;
        }
    }

    async fn drain_queue(&self, leader: &Arc<Node>, queue: &str) {
        let consumer = Arc::new(leader.queues.detached_consumer());
        loop {
            let taken = door::consume(self, leader, consumer.clone(), queue, DRAIN_BATCH, 5_000).await;
            let taken = taken.unwrap_or_default();
            if taken.is_empty() {
                return;
            }
            for (tag, delivery) in &taken {
                self.check_bodies(*tag, delivery, queue.ends_with(DEAD_LETTER_SUFFIX));
            }
            door::settle(self, leader, &taken, Settlement::Ack, false).await;
        }
    }

    /// A message that is not done has the same record on every replica.
    fn check_bodies(&self, tag: u64, delivery: &Delivery, dead: bool) {
        let token = delivery.token.to_bytes();
        let part = |at: usize| {
            let mut part = [0; 8];
            part.copy_from_slice(&token[at..at + 8]);
            u64::from_be_bytes(part)
        };
        let place = (boltq_core::StreamId(part(0)), boltq_core::Seq(part(8)));
        let mut records: Vec<(usize, Result<Bytes, String>)> = Vec::new();
        for node in self.nodes() {
            let mut record = Vec::new();
            let read = node.group.log().read(&[place], ReadMode::Disk, &mut record);
            let read = read
                .map(|_| record.pop().unwrap_or_default())
                .map_err(|error| error.to_string());
            records.push((node.index, read));
        }
        let same = records
            .windows(2)
            .all(|pair| pair[0].1 == pair[1].1 && pair[0].1.is_ok());
        if !same {
            let what = format!("message {tag} (dead letter: {dead}) is not the same on all replicas: {records:?}");
            self.trace.violation(Checker::OneBody, what);
        }
    }

    fn check_totals(&self) {
        let known = self.ledger.known();
        for node in self.nodes() {
            let (totals, open) = node.plane.with(|plane| (plane.totals(), plane.machine().open_count()));
            if totals.expired > 0 {
                self.trace.count("replicas with expired messages");
            }
            if totals.purged > 0 {
                self.trace.count("replicas with purged messages");
            }
            note!(self.trace, "n{}: {totals:?}, open {open}; known {known:?}", node.index);
            if let Err(why) = balance(totals, open, known) {
                self.trace
                    .violation(Checker::Conservation, format!("n{}: {why}", node.index));
            }
        }
    }
}

/// Whether nodes that have applied the same entries have the same state.
fn all_equal(states: &[(usize, u64)]) -> Result<(), String> {
    if states.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        return Ok(());
    }
    Err(format!(
        "nodes have applied the same entries and have different states: {states:x?}"
    ))
}

/// Whether the figures of a replica add up, and are those of the clients.
fn balance(totals: Totals, open: u64, known: Known) -> Result<(), String> {
    let within = |(least, most): (u64, u64), figure: u64| (least..=most).contains(&figure);
    let (purged, exact) = known.purged;
    let wrong = if totals.published != open + totals.acked + totals.expired + totals.purged + totals.dropped {
        "what was published is not what became of it"
    } else if !within(known.published, totals.published) {
        "clients published another number"
    } else if !within(known.acked, totals.acked) {
        "clients acknowledged another number"
    } else if totals.purged < purged || exact && totals.purged != purged {
        "clients removed another number"
    } else {
        return Ok(());
    };
    Err(format!("{wrong}: {totals:?}, open {open}; clients know {known:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOTALS: Totals = Totals {
        published: 10,
        acked: 4,
        nacked: 0,
        expired: 2,
        dead_lettered: 0,
        purged: 1,
        dropped: 0,
        rejected: 0,
    };
    const KNOWN: Known = Known {
        published: (9, 12),
        acked: (4, 5),
        purged: (1, true),
    };

    #[test]
    fn figures_that_do_not_add_up_or_that_clients_know_otherwise_are_found() {
        assert_eq!(balance(TOTALS, 3, KNOWN), Ok(()));
        let wrong = |totals, open, known, part: &str| {
            let why = balance(totals, open, known).unwrap_err();
            assert!(why.starts_with(part), "{why}");
        };
        wrong(TOTALS, 2, KNOWN, "what was published");
        let expired = Totals { expired: 3, ..TOTALS };
        wrong(expired, 3, KNOWN, "what was published");
        for published in [(11, 12), (8, 9)] {
            wrong(TOTALS, 3, Known { published, ..KNOWN }, "clients published");
        }
        for acked in [(5, 6), (3, 3)] {
            wrong(TOTALS, 3, Known { acked, ..KNOWN }, "clients acknowledged");
        }
        for purged in [(0, true), (2, true), (2, false)] {
            wrong(TOTALS, 3, Known { purged, ..KNOWN }, "clients removed");
        }
        let purged = (0, false);
        assert_eq!(balance(TOTALS, 3, Known { purged, ..KNOWN }), Ok(()));
    }

    #[test]
    fn replicas_with_different_states_are_found() {
        assert_eq!(all_equal(&[(0, 7), (1, 7), (2, 7)]), Ok(()));
        assert!(all_equal(&[(0, 7), (1, 7), (2, 8)]).unwrap_err().contains("different"));
    }
}
