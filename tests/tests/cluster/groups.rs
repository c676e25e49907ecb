//! Many groups: all nodes lead some, and what happens to one of them is nothing to the others.

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

/// Waits until each of these nodes leads about as many groups as the others, and all are led.
fn await_even(cluster: &Cluster, nodes: &[usize]) {
    eventually(DEALT_WITHIN, "every node leads its part of the groups", || {
        let leaders = leaders(cluster);
        let led = |node: &usize| {
            let name = cluster.node(*node).name();
            leaders.values().filter(|leader| *leader == name).count()
        };
        let counts: Vec<usize> = nodes.iter().map(led).collect();
        let even = counts.iter().max()? - counts.iter().min()? <= 1;
        (even && counts.iter().sum::<usize>() == GROUPS).then_some(())
    });
}

#[test]
fn groups_are_led_by_all_nodes_alike_also_after_one_was_gone() {
    let options = ServerOptions::memory().set("cluster.stream_groups", STREAM_GROUPS);
    let mut cluster = Cluster::start_with(3, &options);
    await_even(&cluster, &[0, 1, 2]);
    let gone = cluster.leader();
    cluster.kill(gone);
    let others: Vec<usize> = (0..3).filter(|node| *node != gone).collect();
    await_even(&cluster, &others);
    cluster.start_node(gone);
    await_even(&cluster, &[0, 1, 2]);
}
