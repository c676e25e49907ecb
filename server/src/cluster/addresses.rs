//! Where the other nodes are now.
//!
//! Groups keep the address that a node had when it became a member, and openraft keeps it for as long as it runs. So what they
//! say about addresses is asked for the id only; where that node is, is looked up for each request:
//!
//! 1. what a seed said, if nothing has been registered for the node since,
//! 2. what the registry says,
//! 3. what the group says.
//!
//! The registry tells of a new address only while it has a leader. If a majority comes back at new addresses there is none
//! until they find each other, so a node that hears of no leader asks its seeds where they are ([`Cluster::find_others`]). What
//! they say is believed only if the node at that address proves that it is one of those that this node knows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use boltq_core::{GroupId, NodeId};
use boltq_raft::{Peer, Transport, TransportError};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::join::{Way, raft_address_of};
use super::{Cluster, MetaPlane, SeedPlan};

/// How often a node that hears of no leader asks: longer than an election takes.
const LOOK: Duration = Duration::from_secs(2);
/// For a node to say who it is.
const IDENTIFY_MAX: Duration = Duration::from_secs(3);

/// See the module.
pub struct Addresses {
    plane: Arc<MetaPlane>,
    told: Mutex<BTreeMap<NodeId, Told>>,
}

struct Told {
    address: String,
    /// What the registry said then; nothing if it did not know the node yet, as after a start.
    instead_of: Option<String>,
}

impl Addresses {
    /// Of the nodes in a registry.
    #[must_use]
    pub fn new(plane: Arc<MetaPlane>) -> Self {
        Self {
            plane,
            told: Mutex::default(),
        }
    }

    /// The same node, where it is now.
    #[must_use]
    pub fn now(&self, peer: &Peer) -> Peer {
        let registry = self.plane.registry();
        let registered = registry.node(peer.node).map(|node| node.raft.as_str());
        let told = self.told_instead_of(peer.node, registered);
        let address = told.unwrap_or_else(|| registered.unwrap_or(&peer.address).to_owned());
        Peer {
            node: peer.node,
            address,
        }
    }

    fn told_instead_of(&self, node: NodeId, registered: Option<&str>) -> Option<String> {
        let mut all = self.told.lock();
        let told = all.get_mut(&node)?;
        let Some(registered) = registered else {
            return Some(told.address.clone());
        };
        let outdated = told.instead_of.get_or_insert_with(|| registered.to_owned());
        if outdated == registered && told.address != registered {
            return Some(told.address.clone());
        }
        all.remove(&node);
        None
    }

    /// A node that groups know has proved that it is at `address`. Whether that is news.
    fn tell(&self, known: &Peer, address: &str) -> bool {
        if self.now(known).address == address {
            return false;
        }
        let told = Told {
            address: address.to_owned(),
            instead_of: self.plane.node(known.node).map(|node| node.raft),
        };
        self.told.lock().insert(known.node, told);
        true
    }
}

/// The transport of the groups, which sends to where nodes are now.
pub struct Redirected<T> {
    transport: T,
    addresses: Arc<Addresses>,
}

impl<T> Redirected<T> {
    /// Over the transport that knows nothing of nodes that move.
    pub fn new(transport: T, addresses: Arc<Addresses>) -> Self {
        Self { transport, addresses }
    }
}

impl<T: Transport> Transport for Redirected<T> {
    fn call(
        &self,
        to: &Peer,
        group: GroupId,
        request: Bytes,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        self.transport.call(&self.addresses.now(to), group, request, within)
    }

    fn send(
        &self,
        to: &Peer,
        group: GroupId,
        chunks: BoxStream<'static, Result<Bytes, String>>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Bytes, TransportError>> {
        self.transport.send(&self.addresses.now(to), group, chunks, within)
    }
}

impl Cluster {
    /// Asks the seeds where they are whenever a group has no leader, until `stop`.
    pub(super) async fn find_others(self: Arc<Self>, plan: SeedPlan, stop: CancellationToken) {
        let looking = async {
            loop {
                tokio::time::sleep(LOOK).await;
                if self.groups.iter().any(|group| group.status().leader.is_none()) {
                    for seed in &plan.seeds {
                        self.find(seed, plan.way()).await;
                    }
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = looking => {}
        }
    }

    /// A seed that does not answer, or says what cannot be so, is none: the others are asked, and it is asked again.
    async fn find(&self, seed: &str, way: Way<'_>) {
        let Some(address) = raft_address_of(seed, way).await else {
            return;
        };
        let Ok(info) = self.peers.identify(&address, IDENTIFY_MAX).await else {
            return;
        };
        let cluster = self.plane.registry().cluster();
        let of_another = info.cluster != 0 && cluster.is_some_and(|cluster| cluster != info.cluster);
        let members = self.groups.iter().flat_map(|group| group.members());
        let known = members
            .map(|member| member.peer)
            .find(|peer| peer.node == info.node && peer.node != self.me.node);
        let Some(known) = known.filter(|_| !of_another) else {
            return;
        };
        if self.addresses.tell(&known, &address) {
            let node = format!("{:016x}", known.node.0);
            tracing::info!(node, name = info.name, address, "a seed says where a node is now");
        }
    }
}

#[cfg(test)]
mod tests {
    use boltq_core::{Applied, Millis, StateMachine};
    use boltq_meta::{NodeInfo, Registry, command};
    use bytes::BytesMut;

    use super::*;

    fn peer(address: &str) -> Peer {
        Peer {
            node: NodeId(2),
            address: address.to_owned(),
        }
    }

    fn register(plane: &MetaPlane, address: &str) {
        let info = NodeInfo {
            node: NodeId(2),
            name: "n2".to_owned(),
            raft: address.to_owned(),
            messaging: String::new(),
            admin: String::new(),
            voter: true,
            version: String::new(),
        };
        let mut out = BytesMut::new();
        command::register(&mut out, &info);
        let mut registry = Registry::clone(&plane.registry());
        registry.apply(Millis(1), &out, 0, &mut Applied::default()).unwrap();
        plane.set(registry);
    }

    fn addresses() -> (Arc<MetaPlane>, Addresses, impl Fn(&Addresses) -> String) {
        let plane = Arc::new(MetaPlane::new());
        let now = |addresses: &Addresses| addresses.now(&peer("group:1")).address;
        (plane.clone(), Addresses::new(plane), now)
    }

    #[test]
    fn the_registry_knows_better_than_the_group() {
        let (plane, addresses, now) = addresses();
        assert_eq!(now(&addresses), "group:1");
        register(&plane, "registry:1");
        assert_eq!(now(&addresses), "registry:1");
    }

    #[test]
    fn what_a_seed_says_holds_until_the_registry_says_something_new() {
        let (plane, addresses, now) = addresses();
        register(&plane, "registry:1");
        assert!(addresses.tell(&peer("group:1"), "seed:1"));
        assert!(!addresses.tell(&peer("group:1"), "seed:1"), "that is no news");
        assert_eq!(now(&addresses), "seed:1");
        register(&plane, "registry:1");
        assert_eq!(now(&addresses), "seed:1", "that is what was known before");
        register(&plane, "registry:2");
        assert_eq!(now(&addresses), "registry:2");
        register(&plane, "registry:1");
        assert_eq!(now(&addresses), "registry:1", "what the seed said is forgotten");
    }

    #[test]
    fn after_a_start_the_registry_first_repeats_what_it_knew() {
        let (plane, addresses, now) = addresses();
        assert!(addresses.tell(&peer("group:1"), "seed:1"));
        register(&plane, "registry:1");
        assert_eq!(now(&addresses), "seed:1");
        register(&plane, "registry:2");
        assert_eq!(now(&addresses), "registry:2");
    }

    #[test]
    fn a_seed_that_says_what_is_registered_says_nothing_new() {
        let (plane, addresses, now) = addresses();
        register(&plane, "registry:1");
        assert!(!addresses.tell(&peer("group:1"), "registry:1"));
        assert_eq!(now(&addresses), "registry:1");
    }
}
