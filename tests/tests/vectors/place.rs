//! The servers that vectors are played against.

use std::net::SocketAddr;

use boltq_tests::harness::{Cluster, ClusterNode, Server, ServerOptions};
use serde_json::{Map, Value};

use super::format::Place;
use super::matching::Known;

pub(crate) enum Running {
    Alone(Server),
    Nodes {
        cluster: Cluster,
        leader: usize,
        asked: usize,
    },
}

impl Running {
    pub(crate) fn start(place: &Place) -> Self {
        let options = flat(&place.config)
            .into_iter()
            .fold(ServerOptions::memory(), |options, (key, value)| {
                options.set(&key, value)
            });
        if place.nodes < 2 {
            return Self::Alone(Server::start(&options));
        }
        let cluster = Cluster::start_with(place.nodes, &options);
        let (leader, asked) = (cluster.leader(), cluster.follower());
        Self::Nodes { cluster, leader, asked }
    }

    /// Where a connection of this name goes.
    pub(crate) fn address(&self, line: &str) -> SocketAddr {
        match self {
            Self::Alone(server) => server.messaging(),
            Self::Nodes { cluster, leader, .. } if line == "leader" => cluster.node(*leader).messaging(),
            Self::Nodes { cluster, asked, .. } => cluster.node(*asked).messaging(),
        }
    }

    /// The names of nodes and addresses.
    pub(crate) fn known(&self) -> Known {
        let mut known = Known::default();
        let Self::Nodes { cluster, leader, asked } = self else {
            return known;
        };
        let other = (0..cluster.nodes().len()).find(|index| index != leader && index != asked);
        let named = [("leader", Some(*leader)), ("node", Some(*asked)), ("other", other)];
        let named = named
            .into_iter()
            .filter_map(|(name, index)| Some((name, cluster.node(index?))));
        let all = cluster.nodes().iter().map(|node| (node.name(), node));
        let mut tell = |name: &str, node: &ClusterNode| {
            known.set(format!("{name}.id"), node.name());
            known.set(format!("{name}.raft"), node.raft().to_string());
            known.set(format!("{name}.messaging"), node.messaging().to_string());
        };
        named.chain(all).for_each(|(name, node)| tell(name, node));
        known
    }
}

/// Keys with dots, of sections within sections.
fn flat(config: &Map<String, Value>) -> Vec<(String, Value)> {
    let mut keys = Vec::new();
    for (key, value) in config {
        match value {
            Value::Object(section) => {
                let below = flat(section).into_iter();
                keys.extend(below.map(|(name, value)| (format!("{key}.{name}"), value)));
            }
            value => keys.push((key.clone(), value.clone())),
        }
    }
    keys
}
