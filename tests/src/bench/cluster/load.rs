//! What a publisher at the leader gets, beside what it gets from a server that is alone.

use serde_json::json;

use crate::bench::load::{Failure, Figure, Latency};
use crate::bench::load_grpc;
use crate::bench::options::BenchOptions;
use crate::bench::report::{Line, Verdict, rate, us};
use crate::bench::rows::{Row, lock_step, median_figure, median_latency, turns};
use crate::bench::target::Target;
use crate::harness::ServerOptions;

const BATCH: usize = 128;
const OUTSTANDING: usize = 16;
/// Of the rate of one node, which has all of the machine for itself.
const RATIO_MIN: f64 = 0.20;
/// Times the median of one node.
const P50_FACTOR_MAX: f64 = 4.0;

pub(super) async fn batches_line(options: &BenchOptions) -> Result<Line, Failure> {
    let (mut clusters, mut singles) = (Vec::new(), Vec::new());
    for run in 0..options.runs() {
        for alone in turns(run) {
            let target = target(alone).await?;
            let figure = batches(&target, options).await?;
            if alone { &mut singles } else { &mut clusters }.push(figure);
        }
    }
    let (cluster, single) = (median_figure(&clusters), median_figure(&singles));
    let ratio = cluster.rate / single.rate;
    let rates: Vec<f64> = clusters.iter().map(|figure| figure.rate.round()).collect();
    Ok(Line {
        row: Row::ClusterBatches,
        work: "3 nodes: batches of 128, 16 outstanding",
        broker: rate(cluster),
        bare: rate(single),
        ratio: format!("{:.1} %", ratio * 100.0),
        target: format!(">= {:.0} % of one node", RATIO_MIN * 100.0),
        verdict: Verdict::of(ratio >= RATIO_MIN),
        data: json!({"cluster": cluster, "single_node": single, "ratio": ratio, "cluster_runs": rates}),
    })
}

pub(super) async fn latency_line(options: &BenchOptions) -> Result<Line, Failure> {
    let (mut clusters, mut singles): (Vec<Latency>, Vec<Latency>) = Default::default();
    for run in 0..options.runs() {
        for alone in turns(run) {
            let target = target(alone).await?;
            let latency = lock_step(&target, options.timing()).await?;
            if alone { &mut singles } else { &mut clusters }.push(latency);
        }
    }
    let (cluster, single) = (median_latency(&clusters), median_latency(&singles));
    let factor = cluster.p50_us / single.p50_us;
    Ok(Line {
        row: Row::ClusterLatency,
        work: "3 nodes: one publisher in lock-step, p50 / p99",
        broker: format!("{} / {}", us(cluster.p50_us), us(cluster.p99_us)),
        bare: format!("{} / {}", us(single.p50_us), us(single.p99_us)),
        ratio: format!("p50 {factor:.1} x"),
        target: format!("p50 <= {P50_FACTOR_MAX:.0} x one node"),
        verdict: Verdict::of(factor <= P50_FACTOR_MAX),
        data: json!({"cluster": cluster, "single_node": single, "p50_factor": factor}),
    })
}

async fn target(alone: bool) -> Result<Target, Failure> {
    let options = ServerOptions::disk();
    if alone {
        Target::broker(&options)
    } else {
        Target::cluster(&options).await
    }
}

async fn batches(target: &Target, options: &BenchOptions) -> Result<Figure, Failure> {
    let plan = load_grpc::publishing(BATCH, OUTSTANDING);
    let (figure, _) = load_grpc::measure(target, options.timing(), &plan).await?;
    Ok(figure)
}
