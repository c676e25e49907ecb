//! The state and its rules.

use std::collections::BTreeMap;

use boltq_core::{Applied, DecodeError, Millis, NodeId, StateMachine};

use crate::command::Command;
use crate::snapshot;

/// Nodes of a cluster at most: each of them gets everything from the leader.
pub const NODES_MAX: usize = 64;

/// A node of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeInfo {
    /// Its id, which it has drawn with its data directory.
    pub node: NodeId,
    /// What people call it; no two nodes have the same.
    pub name: String,
    /// Host and port for other nodes.
    pub raft: String,
    /// Host and port for clients.
    pub messaging: String,
    /// Host and port for operators.
    pub admin: String,
    /// Whether it is to vote; otherwise it is a read replica.
    pub voter: bool,
    /// What it runs.
    pub version: String,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster has this id, whoever gave it.
    Founded(u64),
    /// The node is registered.
    Registered {
        /// A node that had the name before and is gone now.
        replaced: Option<NodeId>,
    },
    /// There are [`NODES_MAX`] nodes already.
    Full,
    /// The node is not registered; whether it was.
    Unregistered(bool),
}

/// Who belongs to the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    pub(crate) cluster: Option<u64>,
    pub(crate) changes: u64,
    pub(crate) nodes: BTreeMap<NodeId, NodeInfo>,
}

impl Registry {
    /// The id of the cluster, once it has one; never 0.
    #[must_use]
    pub fn cluster(&self) -> Option<u64> {
        self.cluster
    }

    /// How often something changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The nodes in the order of their ids.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeInfo> {
        self.nodes.values()
    }

    /// The node of this id.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&NodeInfo> {
        self.nodes.get(&node)
    }

    /// The node of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&NodeInfo> {
        self.nodes.values().find(|node| node.name == name)
    }

    fn register(&mut self, info: NodeInfo) -> Outcome {
        if self.nodes.get(&info.node) == Some(&info) {
            return Outcome::Registered { replaced: None };
        }
        // A node that lost its data comes back under its name with another id: the old one will not.
        let replaced = self
            .named(&info.name)
            .map(|node| node.node)
            .filter(|node| *node != info.node);
        let is_new = !self.nodes.contains_key(&info.node) && replaced.is_none();
        if is_new && self.nodes.len() >= NODES_MAX {
            return Outcome::Full;
        }
        if let Some(replaced) = replaced {
            self.nodes.remove(&replaced);
        }
        self.nodes.insert(info.node, info);
        self.changes += 1;
        Outcome::Registered { replaced }
    }
}

impl StateMachine for Registry {
    type Outcome = Outcome;
    type Effect = ();

    fn apply(
        &mut self,
        _time: Millis,
        command: &[u8],
        _offset: u32,
        _applied: &mut Applied<()>,
    ) -> Result<Outcome, DecodeError> {
        Ok(match Command::read(command)? {
            Command::Found(cluster) => Outcome::Founded(*self.cluster.get_or_insert(cluster.max(1))),
            Command::Register(info) => self.register(info),
            Command::Unregister(node) => {
                let was = self.nodes.remove(&node).is_some();
                self.changes += u64::from(was);
                Outcome::Unregistered(was)
            }
        })
    }

    fn snapshot(&self) -> Vec<u8> {
        snapshot::write(self)
    }

    fn restore(bytes: &[u8]) -> Result<Self, DecodeError> {
        snapshot::read(bytes)
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proptest::prelude::*;

    use super::*;
    use crate::command;

    fn node(id: u64, name: &str) -> NodeInfo {
        NodeInfo {
            node: NodeId(id),
            name: name.to_owned(),
            raft: format!("{name}:9100"),
            messaging: format!("{name}:9091"),
            admin: format!("{name}:9090"),
            voter: true,
            version: "1".to_owned(),
        }
    }

    fn apply(registry: &mut Registry, write: impl FnOnce(&mut BytesMut)) -> Outcome {
        let mut out = BytesMut::new();
        write(&mut out);
        registry.apply(Millis(1), &out, 0, &mut Applied::default()).unwrap()
    }

    fn register(registry: &mut Registry, info: &NodeInfo) -> Outcome {
        apply(registry, |out| command::register(out, info))
    }

    #[test]
    fn the_first_id_of_a_cluster_stays() {
        let mut registry = Registry::default();
        assert_eq!(apply(&mut registry, |out| command::found(out, 0)), Outcome::Founded(1));
        assert_eq!(apply(&mut registry, |out| command::found(out, 9)), Outcome::Founded(1));
        assert_eq!(registry.cluster(), Some(1));
    }

    #[test]
    fn registering_again_changes_what_is_different_and_nothing_else() {
        let mut registry = Registry::default();
        let none = Outcome::Registered { replaced: None };
        assert_eq!(register(&mut registry, &node(1, "a")), none);
        assert_eq!(register(&mut registry, &node(1, "a")), none);
        assert_eq!(registry.changes(), 1);
        let moved = NodeInfo {
            raft: "b:1".to_owned(),
            voter: false,
            ..node(1, "a")
        };
        assert_eq!(register(&mut registry, &moved), none);
        assert_eq!((registry.changes(), registry.node(NodeId(1))), (2, Some(&moved)));
    }

    #[test]
    fn a_node_that_comes_back_with_another_id_takes_the_place_of_the_old_one() {
        let mut registry = Registry::default();
        register(&mut registry, &node(1, "a"));
        register(&mut registry, &node(2, "b"));
        let outcome = register(&mut registry, &node(3, "a"));
        assert_eq!(
            outcome,
            Outcome::Registered {
                replaced: Some(NodeId(1))
            }
        );
        let ids: Vec<u64> = registry.nodes().map(|node| node.node.0).collect();
        assert_eq!(ids, [2, 3]);
        assert_eq!(registry.named("a").map(|node| node.node), Some(NodeId(3)));
    }

    #[test]
    fn a_full_cluster_takes_nobody_new_but_changes_and_replaces() {
        let mut registry = Registry::default();
        for id in 1..=NODES_MAX as u64 {
            register(&mut registry, &node(id, &id.to_string()));
        }
        assert_eq!(register(&mut registry, &node(1000, "new")), Outcome::Full);
        let replaced = register(&mut registry, &node(1000, "7"));
        assert_eq!(
            replaced,
            Outcome::Registered {
                replaced: Some(NodeId(7))
            }
        );
        assert_eq!(
            apply(&mut registry, |out| command::unregister(out, NodeId(7))),
            Outcome::Unregistered(false)
        );
        assert_eq!(
            apply(&mut registry, |out| command::unregister(out, NodeId(8))),
            Outcome::Unregistered(true)
        );
        assert_eq!(registry.nodes().count(), NODES_MAX - 1);
    }

    proptest! {
        #[test]
        fn a_snapshot_gives_the_same_registry_and_damage_is_refused(
            cluster in proptest::option::of(1_u64..),
            nodes in proptest::collection::vec((any::<u64>(), "[a-z]{1,3}", any::<bool>()), 0..8),
        ) {
            let mut registry = Registry::default();
            if let Some(cluster) = cluster {
                apply(&mut registry, |out| command::found(out, cluster));
            }
            for (id, name, voter) in nodes {
                register(&mut registry, &NodeInfo { voter, ..node(id, &name) });
            }
            let bytes = registry.snapshot();
            prop_assert_eq!(&Registry::restore(&bytes).unwrap(), &registry);
            for end in 0..bytes.len() {
                prop_assert!(Registry::restore(&bytes[..end]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_a_command_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut registry = Registry::default();
            let before = registry.clone();
            if registry.apply(Millis(1), &bytes, 0, &mut Applied::default()).is_err() {
                prop_assert_eq!(registry, before);
            }
        }
    }
}
