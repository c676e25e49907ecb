//! `docs/monitoring.md` and what is in `deploy/` name what there is.

use std::collections::BTreeMap;

use boltq_tests::harness::{Cluster, Server, ServerOptions};

use super::scrape::Scrape;

const REFERENCE: &str = include_str!("../../../docs/monitoring.md");

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
}
