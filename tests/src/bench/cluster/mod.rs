//! The rows of a cluster: three nodes on this machine, which share its processors with the client and with each other.
//!
//! Rates and waiting times stand beside those of one node in the same run, and not beside a bare transport: the question
//! is what replication costs. Leadership is spread over the nodes some ten seconds after they came together, and whoever
//! writes at a leader that hands over is sent away; so nothing is measured before leadership has come to rest.

mod catch_up;
mod failover;
mod idle;
mod load;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::load::Failure;
use super::options::BenchOptions;
use super::report::Report;
use super::rows::Row;
use crate::harness::{Cluster, ClusterNode, ServerOptions};

const NODES: usize = 3;
/// Leadership moves when a node has been looked at for ten seconds, once per second.
const REST: Duration = Duration::from_secs(14);
const REST_WITHIN: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(250);

/// Measures the rows of a cluster that are wanted.
pub(super) async fn add_lines(report: &mut Report, options: &BenchOptions) -> Result<(), Failure> {
    if options.wants(Row::ClusterBatches) {
        report.add(load::batches_line(options).await?);
    }
    if options.wants(Row::ClusterLatency) {
        report.add(load::latency_line(options).await?);
    }
    if options.wants(Row::Failover) {
        report.add(failover::line(options).await?);
    }
    if options.wants(Row::CatchUp) {
        report.add(catch_up::line(options).await?);
    }
    if options.wants(Row::Idle) {
        report.add(idle::line(options).await?);
    }
    Ok(())
}

/// A new cluster on new directories, whose leaders stay where they are.
pub(super) async fn start(options: &ServerOptions) -> Result<Cluster, Failure> {
    let cluster = Cluster::start_with(NODES, options);
    await_rest(&cluster).await?;
    Ok(cluster)
}

/// Term and leader of each group by its name.
type Leaderships = BTreeMap<String, (u64, String)>;

/// The newest that any node knows.
fn leaderships(cluster: &Cluster) -> Leaderships {
    let mut newest = Leaderships::new();
    for status in cluster.nodes().iter().filter_map(ClusterNode::status) {
        for group in status["cluster"]["groups"].as_array().into_iter().flatten() {
            let name = group["name"].as_str().unwrap_or_default();
            let leader = group["leader_id"].as_str().unwrap_or_default();
            let seen = (group["term"].as_u64().unwrap_or_default(), leader.to_owned());
            let known = newest.entry(name.to_owned()).or_default();
            if seen > *known {
                *known = seen;
            }
        }
    }
    newest
}

async fn await_rest(cluster: &Cluster) -> Result<(), Failure> {
    let started = Instant::now();
    let (mut last, mut since) = (leaderships(cluster), Instant::now());
    while since.elapsed() < REST {
        if started.elapsed() > REST_WITHIN {
            return Err(format!("leadership did not come to rest within {REST_WITHIN:?}: {last:?}").into());
        }
        tokio::time::sleep(LOOK).await;
        let now = leaderships(cluster);
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}
