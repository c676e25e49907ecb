//! What both sides of the traffic share: whom to call, and who takes what others call for.

use std::collections::BTreeMap;
use std::sync::Arc;

use boltq_core::{GroupId, NodeId};
use boltq_raft::{Peer, Receiver};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::budget::Target;
use super::dial::Dialer;
use super::link::Link;

/// Takes calls to services inside the cluster: number of the service, and what is for it. The error is for people.
pub type ForwardHandler = Arc<dyn Fn(u32, Bytes) -> BoxFuture<'static, Result<Bytes, String>> + Send + Sync>;

/// See the module.
pub(super) struct Shared {
    pub(super) dialer: Arc<Dialer>,
    pub(super) receivers: RwLock<BTreeMap<GroupId, Arc<dyn Receiver>>>,
    pub(super) forward: RwLock<Option<ForwardHandler>>,
    /// By address too: while a change of address spreads, groups may call one node in two places.
    pub(super) links: RwLock<BTreeMap<NodeId, Vec<Arc<Link>>>>,
    pub(super) runtime: Handle,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Shared {
    pub(super) fn link(&self, to: &Peer) -> Arc<Link> {
        let find = |links: &BTreeMap<NodeId, Vec<Arc<Link>>>| {
            let of_node = links.get(&to.node)?;
            of_node.iter().find(|link| link.address() == to.address).cloned()
        };
        if let Some(link) = find(&self.links.read()) {
            return link;
        }
        let mut links = self.links.write();
        if let Some(link) = find(&links) {
            return link;
        }
        // Links are few, and new ones rare.
        links.retain(|_, links| {
            links.retain(|link| !link.is_idle());
            !links.is_empty()
        });
        let link = Link::new(to.clone(), self.dialer.clone(), self.runtime.clone(), self.stop.clone());
        links.entry(to.node).or_default().push(link.clone());
        link
    }

    /// A node has proved itself to this one, so it can be called again.
    pub(super) fn heard(&self, node: NodeId) {
        if let Some(links) = self.links.read().get(&node) {
            for link in links {
                link.heard();
            }
        }
    }

    pub(super) fn receiver(&self, group: u32) -> Result<Arc<dyn Receiver>, String> {
        let receiver = self.receivers.read().get(&GroupId(group)).cloned();
        receiver.ok_or_else(|| format!("group {group} is not on this node"))
    }

    /// What carries out a request.
    ///
    /// # Errors
    /// Nobody here takes it; in words for the other node.
    pub(super) fn begin(
        &self,
        target: Target,
        payload: Bytes,
    ) -> Result<BoxFuture<'static, Result<Bytes, String>>, String> {
        match target {
            Target::Group(group) => Ok(self.receiver(group)?.receive(payload)),
            Target::Service(service) => {
                let handler = self.forward.read().clone();
                let handler = handler.ok_or_else(|| "this node takes no forwarded calls yet".to_owned())?;
                Ok(handler(service, payload))
            }
        }
    }
}
