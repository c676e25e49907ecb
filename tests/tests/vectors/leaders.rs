//! What the two public libraries do while the leader of three nodes is killed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use boltq_tests::harness::binary::command;
use boltq_tests::harness::library::{Habits, Lockstep, Positional};
use boltq_tests::harness::{Cluster, ServerOptions, eventually};
use serde_json::Value;

use super::work::{PATIENCE, Stop, Work, number_of, until};

const KEY: &str = "s3cret";
const TOPIC: &str = "prices";

fn start(forward: bool) -> Cluster {
    let options = ServerOptions::disk()
        .set("security.api_key", KEY)
        .set("server.tcp_forward", forward);
    Cluster::start_with(3, &options)
}

/// From a node that does not lead on.
fn habits(cluster: &Cluster) -> Habits {
    let mut addresses = cluster.messaging();
    addresses.rotate_left(cluster.follower());
    Habits::new(addresses, Some(KEY))
}

/// What a subscriber has got, in the order in which it came for the first time.
#[derive(Default)]
struct Heard(Vec<u64>, BTreeSet<u64>);

impl Heard {
    fn add(&mut self, push: &Value) {
        let number = number_of(push);
        if self.1.insert(number) {
            self.0.push(number);
        }
    }

    /// All that was promised, in the order of publishing.
    fn check(&self, work: &Work) {
        let missing: Vec<u64> = work.promised().difference(&self.1).copied().collect();
        assert!(
            missing.is_empty(),
            "of {} numbers {missing:?} were never pushed",
            self.0.len()
        );
        assert!(self.0.is_sorted(), "{:?}", self.0);
    }

    fn has_all(&self, work: &Work) -> bool {
        work.promised().is_subset(&self.1)
    }
}

/// Publishes, kills the leader in between, and hears with `next` what there is. The first call of that makes the
/// subscription again, which has a backlog by then.
fn follow(cluster: &mut Cluster, mut next: impl FnMut() -> Option<Value> + Send) {
    let work = Work::default();
    let mut publisher = Lockstep::new(habits(cluster));
    let mut heard = Heard::default();
    std::thread::scope(|scope| {
        let _stop = Stop(&work);
        scope.spawn(|| work.publish(&mut publisher, command::PUBLISH_TOPIC, TOPIC));
        let mut hear = |what: &str, is_enough: &dyn Fn(&Heard) -> bool| {
            eventually(PATIENCE, what, || {
                if let Some(push) = next() {
                    heard.add(&push);
                }
                is_enough(&heard).then_some(())
            });
        };
        eventually(PATIENCE, "a backlog", || {
            (work.published.load(Ordering::SeqCst) >= 20).then_some(())
        });
        hear("the backlog, and what comes behind it", &|heard| heard.0.len() >= 50);
        cluster.kill(cluster.leader());
        let before = work.published.load(Ordering::SeqCst);
        hear("a subscriber that has found the next leader", &|heard| {
            heard.0.iter().any(|number| *number > before + 20)
        });
    });
    eventually(PATIENCE, "everything that was promised", || {
        if let Some(push) = next() {
            heard.add(&push);
        }
        heard.has_all(&work).then_some(())
    });
    heard.check(&work);
}

/// From now on there is a backlog.
fn subscribe_and_leave(cluster: &Cluster) {
    let mut library = Lockstep::new(habits(cluster));
    library.subscribe(TOPIC, "edge", true);
    drop(library);
}

#[test]
fn a_durable_subscriber_of_any_node_follows_the_leader_where_connections_are_passed_on() {
    let mut cluster = start(true);
    subscribe_and_leave(&cluster);
    let library = Positional::new(habits(&cluster));
    let mut is_back = false;
    follow(&mut cluster, || {
        if !std::mem::replace(&mut is_back, true) {
            until(|| library.subscribe(TOPIC, "edge", true)).ok();
        }
        library.push(Duration::from_millis(200))
    });
    assert!(library.connections() > 1);
    assert_eq!(library.strays(), 0);
}

#[test]
fn a_durable_subscriber_goes_where_the_leader_is_said_to_be() {
    let mut cluster = start(false);
    subscribe_and_leave(&cluster);
    let mut library = Lockstep::new(Habits {
        deadline: Duration::from_secs(2),
        ..habits(&cluster)
    });
    let mut is_back = false;
    follow(&mut cluster, || {
        if !std::mem::replace(&mut is_back, true) {
            library.subscribe(TOPIC, "edge", true);
        }
        library.push()
    });
    assert!(
        library.connections() > 2,
        "a node that did not lead, the leader, and the next one"
    );
}
