//! What a cluster costs that has nothing to do.

use std::time::{Duration, Instant};

use serde_json::json;

use super::leaderships;
use crate::bench::load::Failure;
use crate::bench::options::BenchOptions;
use crate::bench::report::{Line, Verdict};
use crate::bench::rows::Row;
use crate::harness::{ClusterNode, ServerOptions};

/// Beside the groups of the registry and of the queues.
const STREAM_GROUPS: usize = 7;
const GROUPS: usize = STREAM_GROUPS + 2;
/// Of one core, for each node.
const CPU_PERCENT_MAX: f64 = 3.0;

/// One run: the time is long enough by itself.
pub(super) async fn line(options: &BenchOptions) -> Result<Line, Failure> {
    let server = ServerOptions::disk().set("cluster.stream_groups", STREAM_GROUPS);
    let cluster = super::start(&server).await?;
    let before = leaderships(&cluster);
    if before.len() != GROUPS {
        return Err(format!("{GROUPS} groups were asked for, and there are {before:?}").into());
    }
    let used = || -> Vec<Duration> {
        let stats = cluster.nodes().iter().filter_map(ClusterNode::stat);
        stats.map(|stat| stat.usage().cpu).collect()
    };
    let (started, used_before) = (Instant::now(), used());
    tokio::time::sleep(options.idle_time()).await;
    let (elapsed, used_after) = (started.elapsed().as_secs_f64(), used());
    let percents: Vec<f64> = used_after
        .iter()
        .zip(&used_before)
        .map(|(after, before)| (*after - *before).as_secs_f64() / elapsed * 100.0)
        .collect();
    // A term begins with every attempt at an election, so no change of a leader is missed.
    let terms = |(group, (term, _)): (&String, &(u64, String))| term - before.get(group).map_or(0, |(term, _)| *term);
    let elections: u64 = leaderships(&cluster).iter().map(terms).sum();
    let shown: Vec<String> = percents.iter().map(|percent| format!("{percent:.2}")).collect();
    let most = percents.iter().copied().fold(0.0, f64::max);
    Ok(Line {
        row: Row::Idle,
        work: "3 nodes, 9 groups, idle: processor of each",
        broker: format!("{} %", shown.join(" / ")),
        bare: String::new(),
        ratio: format!("{elections} elections"),
        target: format!("< {CPU_PERCENT_MAX:.0} % of a core, 0"),
        verdict: Verdict::of(most < CPU_PERCENT_MAX && elections == 0),
        data: json!({"cpu_percent": percents, "elections": elections, "seconds": elapsed}),
    })
}
