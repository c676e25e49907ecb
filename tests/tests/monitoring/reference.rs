//! `docs/monitoring.md`, and the dashboard and the rules in `deploy/`, name what there is.

use std::collections::{BTreeMap, BTreeSet};

use boltq_tests::harness::{Cluster, Server, ServerOptions};

use super::scrape::Scrape;

const REFERENCE: &str = include_str!("../../../docs/monitoring.md");
const DASHBOARD: &str = include_str!("../../../deploy/grafana/boltq.json");
const ALERTS: &str = include_str!("../../../deploy/prometheus/alerts.yml");

/// Names of metrics in a text, without what a histogram adds to them.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("boltq_"));
    names
        .map(|name| {
            let parts = ["_bucket", "_sum", "_count"];
            // One counter ends like a part of a histogram.
            let part = parts.iter().find_map(|part| name.strip_suffix(part));
            part.filter(|family| family.ends_with("_seconds") || family.ends_with("_proposals"))
                .unwrap_or(name)
        })
        .collect()
}

/// Rows of the table, as it has to be.
fn rows(families: &BTreeMap<String, (String, String)>) -> Vec<String> {
    let row = |(name, (kind, help)): (&String, &(String, String))| format!("| `{name}` | {kind} | {help} |");
    families.iter().map(row).collect()
}

#[test]
fn the_reference_has_every_metric_and_no_other() {
    let alone = Server::start(&ServerOptions::disk());
    let cluster = Cluster::start_with(2, &ServerOptions::memory());
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let scrapes = [
        Scrape::of(alone.admin()),
        Scrape::of(cluster.node(leader).admin()),
        Scrape::of(cluster.node(follower).admin()),
    ];
    let families: BTreeMap<String, (String, String)> = scrapes
        .iter()
        .flat_map(Scrape::families)
        .map(|(name, (kind, help))| (name.to_owned(), (kind.to_owned(), help.to_owned())))
        .collect();
    let wanted = rows(&families);
    let written: Vec<&str> = REFERENCE
        .lines()
        .skip_while(|line| !line.starts_with("| metric |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert_eq!(
        written,
        wanted,
        "the table in docs/monitoring.md has to be:\n{}\n",
        wanted.join("\n")
    );
    for (file, text) in [("the dashboard", DASHBOARD), ("the rules", ALERTS)] {
        let used = names(text);
        assert!(used.len() > 10, "{used:?}");
        for name in used {
            assert!(
                families.contains_key(name),
                "{file} asks for {name}, which there is not"
            );
        }
    }
    serde_json::from_str::<serde_json::Value>(DASHBOARD).expect("a dashboard in JSON");
}
