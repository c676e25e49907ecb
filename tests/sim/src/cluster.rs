//! The nodes of a run: which ones are up, and how they go down and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use boltq_log::testing::SimFiles;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use crate::cache::History;
use crate::ledger::Ledger;
use crate::net::Net;
use crate::node::{Kit, Node};
use crate::plan::{Broken, Plan};
use crate::random::Random;
use crate::trace::{Checker, Trace, note};

/// How often it is looked whether a node has stopped by itself.
const SUPERVISE: Duration = Duration::from_millis(50);
/// A process that ended by itself is started again after this.
const RESTART: Duration = Duration::from_millis(200);

/// How a node ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End {
    /// The process is killed; the system keeps what it was given.
    Kill,
    /// The power goes, and with it everything that is not synced.
    LoseUnsynced,
    /// The power goes, and what was not synced is there in part.
    Tear(u64),
    /// The power goes after so many more operations of the disk.
    MidWrite(u64, u64),
}

struct Slot {
    files: SimFiles,
    node: Option<Arc<Node>>,
    /// Somebody takes it down and up.
    busy: bool,
    /// Its disk was made to fail, so it may stop.
    may_fail: bool,
    random: Random,
}

/// A cluster; the tasks of a run share it.
pub(crate) struct Cluster {
    pub(crate) plan: Plan,
    pub(crate) kit: Kit,
    pub(crate) trace: Trace,
    pub(crate) ledger: Ledger,
    pub(crate) cache: History,
    /// Clients go on.
    pub(crate) loaded: AtomicBool,
    healing: AtomicBool,
    slots: Mutex<Vec<Slot>>,
}

/// Nodes hold the network, which holds them.
impl Drop for Cluster {
    fn drop(&mut self) {
        self.kit.net.clear();
    }
}

impl Cluster {
    pub(crate) fn new(mut plan: Plan, broken: Broken, trace: Trace) -> Arc<Self> {
        let impostor = (broken == Broken::CountsLearner).then(|| plan.nodes() - 1);
        let net = Net::new(plan.nodes(), plan.random.fork(), impostor, trace.clone());
        let slots = (0..plan.nodes()).map(|_| Slot {
            files: SimFiles::new(),
            node: None,
            busy: false,
            may_fail: false,
            random: plan.random.fork(),
        });
        let slots = Mutex::new(slots.collect());
        Arc::new(Self {
            kit: Kit {
                net,
                log: plan.log,
                broken,
            },
            plan,
            ledger: Ledger::new(trace.clone()),
            cache: History::new(trace.clone()),
            trace,
            loaded: AtomicBool::new(true),
            healing: AtomicBool::new(false),
            slots,
        })
    }

    /// A node, if it is up.
    pub(crate) fn node(&self, node: usize) -> Option<Arc<Node>> {
        self.slots.lock()[node].node.clone()
    }

    /// All that are up.
    pub(crate) fn nodes(&self) -> Vec<Arc<Node>> {
        self.slots.lock().iter().filter_map(|slot| slot.node.clone()).collect()
    }

    /// Who says that it leads, in the latest term.
    pub(crate) fn leader(&self) -> Option<Arc<Node>> {
        let leading = self.nodes().into_iter().filter(|node| node.leads());
        leading.max_by_key(|node| node.term())
    }

    /// Mostly somebody who says that it leads, be it wrong.
    pub(crate) fn leader_or_any(&self, random: &mut Random) -> Option<Arc<Node>> {
        let nodes = self.nodes();
        let leading: Vec<_> = nodes.iter().filter(|node| node.leads()).cloned().collect();
        let from = if leading.is_empty() || random.permille(20) {
            nodes
        } else {
            leading
        };
        (!from.is_empty()).then(|| random.pick(&from))
    }

    /// Anybody who is up.
    pub(crate) fn any(&self, random: &mut Random) -> Option<Arc<Node>> {
        let nodes = self.nodes();
        (!nodes.is_empty()).then(|| random.pick(&nodes))
    }

    pub(crate) fn healing(&self) -> bool {
        self.healing.load(Ordering::Relaxed)
    }

    /// From now on no fault begins, and those that there are end.
    pub(crate) fn heal(&self) {
        note!(self.trace, "everything is healed");
        self.healing.store(true, Ordering::Relaxed);
        self.kit.net.heal();
        if self.kit.broken == Broken::StaysCut {
            let nodes = 0..self.plan.nodes();
            let links: Vec<_> = nodes
                .clone()
                .flat_map(|from| nodes.clone().map(move |to| (from, to)))
                .collect();
            self.kit.net.cut(&links);
        }
        for node in self.nodes() {
            node.process.resume();
            node.slow_down(0);
        }
    }

    /// Has a sync of a node's disk fail.
    pub(crate) fn fail_sync(&self, node: usize, nth: u64) {
        let mut slots = self.slots.lock();
        let slot = &mut slots[node];
        slot.may_fail = true;
        slot.files.fail_sync(nth);
        self.trace.count("failing syncs");
    }

    /// Takes a slot, unless somebody has it.
    fn occupy(&self, node: usize) -> bool {
        let mut slots = self.slots.lock();
        !std::mem::replace(&mut slots[node].busy, true)
    }

    fn leave(&self, node: usize) {
        self.slots.lock()[node].busy = false;
    }

    /// Takes a node down for a while.
    pub(crate) async fn down(&self, node: usize, end: End, lasts: Duration) {
        if !self.occupy(node) {
            return;
        }
        if let End::MidWrite(after, _) = end {
            let files = {
                let mut slots = self.slots.lock();
                slots[node].may_fail = true;
                slots[node].files.clone()
            };
            files.stop_after(after);
            sleep(Duration::from_millis(20)).await;
        }
        self.end(node, end);
        sleep(lasts).await;
        self.up(node, false).await;
        self.leave(node);
    }

    /// Ends the process of a node.
    fn end(&self, node: usize, end: End) {
        let mut slots = self.slots.lock();
        let slot = &mut slots[node];
        if let Some(running) = slot.node.take() {
            running.process.kill();
        }
        self.kit.net.disconnect(node);
        slot.files = match end {
            End::Kill => {
                // What was to fail later is not to surprise the next process.
                slot.files.fail_sync(0);
                slot.files.after_kill()
            }
            End::LoseUnsynced => slot.files.lose_unsynced(),
            End::Tear(seed) | End::MidWrite(_, seed) => slot.files.crash(seed),
        };
        slot.may_fail = false;
        drop(slots);
        self.trace.count("crashes");
        note!(self.trace, "n{node} ends: {end:?}");
    }

    /// Starts a node that is down.
    pub(crate) async fn up(&self, node: usize, found: bool) {
        let (files, random) = {
            let mut slots = self.slots.lock();
            let slot = &mut slots[node];
            (slot.files.clone(), slot.random.fork())
        };
        let started = Node::start(&self.kit, node, files, found, random).await;
        match started {
            Ok(started) => {
                note!(
                    self.trace,
                    "n{node} is up: {:?}",
                    started.log.group(started.group.id()).raft_state().last
                );
                self.slots.lock()[node].node = Some(started);
            }
            Err(why) => self
                .trace
                .violation(Checker::Recovery, format!("node {node} does not come up: {why}")),
        }
    }

    /// Stops a node as SIGTERM does, and starts it again.
    pub(crate) async fn restart(&self, node: usize) {
        if !self.occupy(node) {
            return;
        }
        if let Some(running) = self.node(node) {
            running.stop().await;
        }
        self.end(node, End::Kill);
        self.up(node, false).await;
        self.leave(node);
    }

    /// Starts processes again that ended by themselves.
    pub(crate) async fn supervise(self: Arc<Self>) {
        loop {
            sleep(SUPERVISE).await;
            for node in self.nodes() {
                if let Some(why) = node.failure() {
                    self.revive(&node, why).await;
                }
            }
        }
    }

    async fn revive(&self, node: &Arc<Node>, why: String) {
        let index = node.index;
        if !self.occupy(index) {
            return;
        }
        // Another process may run there by now: others were revived meanwhile.
        if !self.node(index).is_some_and(|running| Arc::ptr_eq(&running, node)) {
            self.leave(index);
            return;
        }
        note!(self.trace, "n{index} stopped by itself: {why}");
        let may_fail = self.slots.lock()[index].may_fail;
        if !may_fail {
            let what = format!("node {index} stopped by itself: {why}");
            self.trace.violation(Checker::Recovery, what);
        }
        self.end(index, End::Kill);
        sleep(RESTART).await;
        self.up(index, false).await;
        self.leave(index);
    }

    /// Waits until nobody is down any more.
    pub(crate) async fn all_up(&self) -> bool {
        let all_up = async {
            loop {
                let up = {
                    let slots = self.slots.lock();
                    slots.iter().all(|slot| slot.node.is_some() && !slot.busy)
                };
                if up || self.trace.is_broken() {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(60), all_up).await.is_ok()
    }
}
