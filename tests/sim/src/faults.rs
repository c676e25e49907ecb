//! Faults, and when they come.

use std::sync::Arc;
use std::time::Duration;

use boltq_raft::MembershipError;
use tokio::time::sleep;

use crate::clocks;
use crate::cluster::{Cluster, End};
use crate::net::Weather;
use crate::node::peer;
use crate::random::Random;
use crate::trace::note;

/// Whom a fault is to meet.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Target {
    /// Whoever leads then.
    Leader,
    Node(usize),
}

/// How links are cut.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cut {
    /// One node from all others.
    Alone(Target),
    /// One node, but only what goes to it.
    Deaf(Target),
    /// One node, but only what comes from it.
    Mute(Target),
    /// The leader and one more from all others: of five, a minority.
    Two,
    /// Nodes with even numbers from those with odd ones.
    Halves,
    /// Each node speaks with its neighbours only.
    Ring,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Cut(Cut),
    Weather(Weather),
    Crash(Target, End),
    CrashAll(End),
    Restart(Target),
    Pause(Target),
    SlowDisk(Target, u64),
    FailSync(Target),
    Clock(Target, i64),
    Transfer(usize),
    Remove(Target),
    Demote(Target),
    Checkpoint(Target),
}

/// A fault, when it comes and for how long, in ms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) at_ms: u64,
    pub(crate) for_ms: u64,
    pub(crate) fault: Fault,
}

/// The faults of a run.
pub(crate) fn draw(random: &mut Random, voters: usize, learners: usize, load_ms: u64) -> Vec<Event> {
    let nodes = voters + learners;
    let count = random.between(2, 9);
    let mut events: Vec<_> = (0..count)
        .map(|_| Event {
            at_ms: random.below(load_ms * 9 / 10),
            for_ms: random.pick(&[100, 600, 1_500, 3_000]) + random.below(300),
            fault: fault(random, nodes),
        })
        .collect();
    events.sort_by_key(|event| event.at_ms);
    events
}

fn target(random: &mut Random, nodes: usize) -> Target {
    if random.permille(500) {
        Target::Leader
    } else {
        Target::Node(node(random, nodes))
    }
}

fn node(random: &mut Random, nodes: usize) -> usize {
    usize::try_from(random.below(nodes as u64)).unwrap_or(0)
}

fn fault(random: &mut Random, nodes: usize) -> Fault {
    let target = target(random, nodes);
    match random.below(100) {
        0..28 => Fault::Cut(match random.below(8) {
            0..3 => Cut::Alone(target),
            3 => Cut::Deaf(target),
            4 => Cut::Mute(target),
            5 => Cut::Two,
            6 => Cut::Halves,
            _ => Cut::Ring,
        }),
        28..38 => Fault::Weather(weather(random)),
        38..54 => Fault::Crash(target, end(random)),
        54..62 => Fault::CrashAll(end(random)),
        62..66 => Fault::Restart(target),
        66..74 => Fault::Pause(target),
        74..79 => Fault::SlowDisk(target, random.pick(&[20, 100, 700, 5_000])),
        79..82 => Fault::FailSync(target),
        82..88 => {
            let by_ms = i64::try_from(random.between(1, 6_000)).unwrap_or(1);
            Fault::Clock(target, if random.permille(500) { by_ms } else { -by_ms })
        }
        88..91 => Fault::Transfer(node(random, nodes)),
        91..94 => Fault::Remove(target),
        94..97 => Fault::Demote(target),
        _ => Fault::Checkpoint(target),
    }
}

fn end(random: &mut Random) -> End {
    match random.below(4) {
        0 => End::Kill,
        1 => End::LoseUnsynced,
        2 => End::Tear(random.next()),
        _ => End::MidWrite(random.below(12), random.next()),
    }
}

fn weather(random: &mut Random) -> Weather {
    Weather {
        loss_permille: random.pick(&[0, 20, 200]),
        repeat_permille: random.pick(&[0, 50, 300]),
        delay_ms: random.pick(&[(0, 5), (5, 60), (50, 250)]),
        reorder: random.permille(500),
    }
}

impl Cluster {
    /// Has a fault come and go.
    pub(crate) async fn strike(self: Arc<Self>, event: Event, mut random: Random) {
        sleep(Duration::from_millis(event.at_ms)).await;
        if self.healing() {
            return;
        }
        note!(self.trace, "FAULT for {} ms: {:?}", event.for_ms, event.fault);
        let lasts = Duration::from_millis(event.for_ms);
        match event.fault {
            Fault::Cut(cut) => {
                let links = self.links(cut);
                self.kit.net.cut(&links);
                sleep(lasts).await;
                self.kit.net.mend(&links);
            }
            Fault::Weather(weather) => {
                self.kit.net.set_weather(weather);
                sleep(lasts).await;
                self.kit.net.set_weather(Weather::CALM);
            }
            Fault::Crash(target, end) => self.down(self.meet(target), end, lasts).await,
            Fault::CrashAll(end) => {
                let down = (0..self.plan.nodes()).map(|node| self.down(node, end, lasts));
                futures_util::future::join_all(down).await;
            }
            Fault::Restart(target) => self.restart(self.meet(target)).await,
            Fault::Clock(target, by_ms) => clocks::jump(self.meet(target), by_ms),
            Fault::Pause(target) | Fault::SlowDisk(target, _) | Fault::FailSync(target) | Fault::Checkpoint(target) => {
                self.trouble(self.meet(target), event.fault, lasts, &mut random).await;
            }
            Fault::Transfer(to) => {
                if let Some(leader) = self.leader() {
                    let group = leader.group.clone();
                    leader
                        .ask(lasts, async move { group.hand_over(peer(to).node).await })
                        .await;
                }
            }
            Fault::Remove(target) => self.change(self.meet(target), true, lasts).await,
            Fault::Demote(target) => self.change(self.meet(target), false, lasts).await,
        }
        note!(self.trace, "over: {:?}", event.fault);
    }

    /// What a node suffers while it runs.
    async fn trouble(&self, node: usize, fault: Fault, lasts: Duration, random: &mut Random) {
        let Some(node) = self.node(node) else { return };
        match fault {
            Fault::Pause(_) => {
                node.process.pause();
                sleep(lasts).await;
                node.process.resume();
            }
            Fault::SlowDisk(_, ms) => {
                node.slow_down(ms);
                sleep(lasts).await;
                node.slow_down(0);
            }
            Fault::FailSync(_) => self.fail_sync(node.index, 1 + random.below(3)),
            _ => {
                let group = node.group.clone();
                node.ask(lasts, async move { group.checkpoint().await }).await;
            }
        }
    }

    fn meet(&self, target: Target) -> usize {
        match target {
            Target::Node(node) => node,
            Target::Leader => self.leader().map_or(0, |leader| leader.index),
        }
    }

    fn links(&self, cut: Cut) -> Vec<(usize, usize)> {
        let nodes = self.plan.nodes();
        let leader = self.meet(Target::Leader);
        let all = (0..nodes).flat_map(|from| (0..nodes).map(move |to| (from, to)));
        let met = match cut {
            Cut::Alone(target) | Cut::Deaf(target) | Cut::Mute(target) => self.meet(target),
            Cut::Two | Cut::Halves | Cut::Ring => leader,
        };
        // The learner, if there is one, so that it is the leader's only company.
        let company = if self.plan.learners > 0 {
            nodes - 1
        } else {
            (leader + 1) % nodes
        };
        let two = |node: usize| node == leader || node == company;
        let is_cut = |from: usize, to: usize| match cut {
            Cut::Alone(_) => (from == met) != (to == met),
            Cut::Deaf(_) => from != met && to == met,
            Cut::Mute(_) => from == met && to != met,
            Cut::Two => two(from) != two(to),
            Cut::Halves => from % 2 != to % 2,
            Cut::Ring => from != to && (from + 1) % nodes != to && (to + 1) % nodes != from,
        };
        all.filter(|(from, to)| is_cut(*from, *to)).collect()
    }

    /// Takes a node out of the group, or its vote, and later gives it back.
    async fn change(&self, node: usize, remove: bool, lasts: Duration) {
        let Some(leader) = self.leader() else { return };
        let (group, id) = (leader.group.clone(), peer(node).node);
        let changed = leader
            .ask(Duration::from_secs(5), async move {
                if remove {
                    group.remove(id).await
                } else {
                    group.demote(id).await
                }
            })
            .await;
        if matches!(changed, Some(Ok(()))) {
            self.trace.count("membership changes");
        }
        note!(self.trace, "membership without n{node}: {}", outcome(changed.as_ref()));
        sleep(lasts).await;
        if !self.healing() {
            let restored = self.take_in(node).await;
            note!(self.trace, "membership with n{node}: {restored}");
        }
    }

    /// Makes a node what it is to be; whether that is known to be done.
    pub(crate) async fn take_in(&self, node: usize) -> bool {
        let Some(leader) = self.leader() else { return false };
        let (group, peer, votes) = (leader.group.clone(), peer(node), node < self.plan.voters);
        let changed = leader
            .ask(Duration::from_secs(5), async move {
                group.add_learner(&peer).await?;
                if votes {
                    group.promote(peer.node).await
                } else {
                    group.demote(peer.node).await
                }
            })
            .await;
        note!(self.trace, "n{node} taken in: {}", outcome(changed.as_ref()));
        matches!(changed, Some(Ok(())))
    }
}

fn outcome(changed: Option<&Result<(), MembershipError>>) -> String {
    match changed {
        None => "no answer".to_owned(),
        Some(Ok(())) => "done".to_owned(),
        Some(Err(error)) => error.to_string(),
    }
}
