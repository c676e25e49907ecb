//! Many groups: all nodes lead some, whoever is gone leads none, and who comes back gets its part again.

use std::collections::BTreeMap;
use std::time::Duration;

use boltq_tests::harness::{Cluster, ClusterNode, ServerOptions, eventually};

const STREAM_GROUPS: usize = 7;
/// With those of the registry and of the queues.
const GROUPS: usize = STREAM_GROUPS + 2;
/// Leadership is dealt again every few seconds, one group at a time.
const DEALT_WITHIN: Duration = Duration::from_secs(120);

/// Who leads each group, by the newest term that any node knows.
fn leaders(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut newest: BTreeMap<String, (u64, String)> = BTreeMap::new();
    for status in cluster.nodes().iter().filter_map(ClusterNode::status) {
        for group in status["cluster"]["groups"].as_array().into_iter().flatten() {
            let name = group["name"].as_str().unwrap().to_owned();
            let leader = group["leader_id"].as_str().unwrap_or_default().to_owned();
            let seen = (group["term"].as_u64().unwrap(), leader);
            let known = newest.entry(name).or_default();
            if seen > *known {
                *known = seen;
            }
        }
    }
    newest.into_iter().map(|(name, (_, leader))| (name, leader)).collect()
}

/// How many groups each node leads.
fn counts(cluster: &Cluster) -> Vec<usize> {
    let leaders = leaders(cluster);
    let led = |node: &ClusterNode| leaders.values().filter(|leader| *leader == node.name()).count();
    cluster.nodes().iter().map(led).collect()
}

fn await_even(cluster: &Cluster) {
    eventually(DEALT_WITHIN, "every node leads its part of the groups", || {
        (counts(cluster) == [GROUPS / 3; 3]).then_some(())
    });
}

#[test]
fn groups_are_led_by_all_nodes_alike_also_after_one_was_gone() {
    let options = ServerOptions::memory().set("cluster.stream_groups", STREAM_GROUPS);
    let mut cluster = Cluster::start_with(3, &options);
    await_even(&cluster);
    let gone = cluster.leader();
    cluster.kill(gone);
    // Each of its groups elects for itself; nobody deals while one is missing.
    eventually(DEALT_WITHIN, "the others lead all groups", || {
        let counts = counts(&cluster);
        (counts[gone] == 0 && counts.iter().sum::<usize>() == GROUPS).then_some(())
    });
    cluster.start_node(gone);
    await_even(&cluster);
}
