//! What a node has that is one of several: the groups beside that of the queue plane, the connections to the others, and the
//! cluster over them.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use boltq_core::{GroupId, NodeId};
use boltq_log::Log;
use boltq_messaging::Slot;
use boltq_meta::NodeInfo;
use boltq_raft::{Group, GroupConfig, GroupHandler, Transport};
use futures_util::future::{BoxFuture, select_all};
use tokio::net::TcpListener;

use super::ports::local;
use super::storage::proposal_bytes_max;
use super::{NodeError, messaging};
use crate::clock;
use crate::cluster::{
    Addresses, AnyGroup, Cluster, Departure, FIRST_STREAM_GROUP, META_GROUP, MetaPlane, QUEUE_GROUP, Redirected,
    SeedPlan, StreamPlane, somebody_has_a_cluster,
};
use crate::config::{ClusterConfig, ClusterTls, Config};
use crate::peer::{InfoSource, PeerConfig, PeerInfo, PeerSecret, PeerTls, Peers};
use crate::plane::QueuePlane;
use crate::tls::Dialer;

/// What only a node has that is one of several.
pub(super) struct Clustered {
    pub(super) cluster: Arc<Cluster>,
    meta: Group<MetaPlane>,
    streams: Vec<Group<StreamPlane>>,
    peers: Peers,
    leave: bool,
}

impl Clustered {
    /// Returns when one of the groups beside that of the queue plane has stopped by itself; never without any.
    pub(super) async fn failed(this: Option<&Self>) -> String {
        let Some(this) = this else { return pending().await };
        let streams = this
            .streams
            .iter()
            .map(|group| -> BoxFuture<'_, String> { Box::pin(group.failed()) });
        let meta: BoxFuture<'_, String> = Box::pin(this.meta.failed());
        let (reason, _, _) = select_all(streams.chain([meta])).await;
        reason
    }

    /// Before the doors close: others lead what this node led, so that they can be asked at once.
    pub(super) async fn depart(&self) {
        if self.leave
            && !self.cluster.departure().is_removed()
            && let Err(error) = self.cluster.leave_self().await
        {
            tracing::warn!(%error, "this node could not leave the cluster; it stays a member");
        }
        self.cluster.hand_over_all().await;
    }

    pub(super) async fn close(&self) {
        self.meta.checkpoint().await;
        self.meta.shutdown().await;
        for group in &self.streams {
            group.checkpoint().await;
            group.shutdown().await;
        }
        self.peers.stop().await;
    }
}

/// What it takes to open the groups of a node that is one of several.
pub(super) struct Opening<'a> {
    pub(super) config: &'a Config,
    /// Whether this node founds the cluster, if it belongs to none.
    pub(super) found: bool,
    pub(super) node: NodeId,
    pub(super) log: &'a Log,
    /// None: this node has no messaging plane.
    pub(super) messaging_log: Option<&'a Log>,
    pub(super) messaging: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) departure: Departure,
    pub(super) dialer: Dialer,
}

impl Opening<'_> {
    pub(super) async fn open(
        self,
        raft: TcpListener,
        plane: Arc<QueuePlane>,
    ) -> Result<(Group<QueuePlane>, Clustered, Vec<Slot>, Option<SeedPlan>), NodeError> {
        let config = &self.config.cluster;
        let new = self.log.group(META_GROUP).raft_state().last.is_none();
        if new && !self.found && self.log.group(QUEUE_GROUP).raft_state().last.is_some() {
            let path = self.config.storage.data_dir.clone();
            return Err(NodeError::DataOfItsOwn { path });
        }
        let me = NodeInfo {
            node: self.node,
            name: config.node_id.clone(),
            raft: config.advertised(local(&raft)?.port()),
            messaging: config.advertised(self.messaging.port()),
            admin: config.advertised(self.admin.port()),
            voter: !config.non_voter,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let registry = Arc::new(MetaPlane::new());
        let peers = Peers::start(
            raft,
            peer_config(config),
            info_source(&me, &registry, self.stream_groups()),
        )
        .await?;
        let addresses = Arc::new(Addresses::new(registry.clone()));
        let transport: Arc<dyn Transport> = Arc::new(Redirected::new(peers.clone(), addresses.clone()));
        let meta = self.group(META_GROUP, &me, registry.clone(), &transport).await?;
        peers.register(META_GROUP, Arc::new(meta.clone()));
        let group = self.group(QUEUE_GROUP, &me, plane, &transport).await?;
        peers.register(QUEUE_GROUP, Arc::new(group.clone()));
        let mut streams = Vec::new();
        for number in 0..u32::from(config.stream_groups) {
            let id = GroupId(FIRST_STREAM_GROUP.0 + number);
            let stream = self.group(id, &me, Arc::new(StreamPlane), &transport).await?;
            peers.register(id, Arc::new(stream.clone()));
            streams.push(stream);
        }
        let slots = self.messaging_groups(&me, &transport, &peers, new).await?;
        let any = |group: &Group<StreamPlane>| -> Arc<dyn AnyGroup> { Arc::new(group.clone()) };
        let mut others: Vec<Arc<dyn AnyGroup>> = vec![Arc::new(group.clone())];
        others.extend(streams.iter().map(any));
        others.extend(
            slots
                .iter()
                .map(|slot| -> Arc<dyn AnyGroup> { Arc::new(slot.group.clone()) }),
        );
        let seeds = self.seeds(&me.admin, !new);
        let cluster = Arc::new(Cluster::new(
            me,
            meta.clone(),
            registry,
            others,
            (peers.clone(), addresses),
            self.departure,
        ));
        let calls = Arc::downgrade(&cluster);
        peers.serve_forwarded(Arc::new(move |service, request| {
            let cluster = calls.upgrade();
            Box::pin(async move {
                let cluster = cluster.ok_or_else(|| "the node is stopping".to_owned())?;
                cluster.serve(service, request).await
            })
        }));
        let clustered = Clustered {
            cluster,
            meta,
            streams,
            peers,
            leave: config.leave_on_shutdown,
        };
        Ok((group, clustered, slots, seeds))
    }

    /// How many groups this node has beside those of the registry and of the queues.
    fn stream_groups(&self) -> u16 {
        match self.messaging_log {
            Some(_) => self.config.messaging.groups,
            None => self.config.cluster.stream_groups,
        }
    }

    /// The groups of the messaging plane. They are founded with the cluster: later, more than one node might do it.
    async fn messaging_groups(
        &self,
        me: &NodeInfo,
        transport: &Arc<dyn Transport>,
        peers: &Peers,
        new: bool,
    ) -> Result<Vec<Slot>, NodeError> {
        let Some(log) = self.messaging_log else {
            return Ok(Vec::new());
        };
        let mut slots = Vec::new();
        for id in messaging::group_ids(self.config) {
            let plane = messaging::plane(log, id);
            let mut config = self.group_config(id, me);
            config.found = self.found && new;
            let group = Group::open(config, log.group(id), plane.clone(), transport.clone()).await?;
            peers.register(id, Arc::new(group.clone()));
            slots.push(Slot { group, plane });
        }
        Ok(slots)
    }

    async fn group<H: GroupHandler>(
        &self,
        id: GroupId,
        me: &NodeInfo,
        handler: Arc<H>,
        transport: &Arc<dyn Transport>,
    ) -> Result<Group<H>, NodeError> {
        let config = self.group_config(id, me);
        Ok(Group::open(config, self.log.group(id), handler, transport.clone()).await?)
    }

    fn group_config(&self, id: GroupId, me: &NodeInfo) -> GroupConfig {
        let config = &self.config.cluster;
        let mut group = GroupConfig::new(id, self.node, clock::now);
        group.address.clone_from(&me.raft);
        group.found = self.found;
        group.proposal_bytes_max = proposal_bytes_max(self.config);
        group.min_in_sync = if id == META_GROUP { 0 } else { config.min_in_sync };
        group.heartbeat = config.heartbeat;
        group.checkpoint_interval_entries = config.snapshot_threshold_entries;
        group.election = (config.election_timeout_min, config.election_timeout_max);
        group
    }

    /// Whom to ask to be let in, or where the others are: nobody, if this node founds the cluster now, was removed, or there
    /// is nobody to ask.
    fn seeds(&self, own: &str, known: bool) -> Option<SeedPlan> {
        let config = &self.config.cluster;
        if self.found && !known || self.departure.is_removed() {
            return None;
        }
        let seeds: Vec<String> = config.seeds.iter().filter(|seed| *seed != own).cloned().collect();
        let api_key = self.config.security.api_key.expose().map(str::to_owned);
        let refresh = known && !self.departure.has_left();
        (!seeds.is_empty()).then(|| SeedPlan::new(seeds, api_key, self.dialer.clone(), refresh))
    }
}

/// Whether a node that is to found a cluster does. It asks the seeds only if it has no data.
pub(super) async fn founds(config: &Config, log: &Log, dialer: &Dialer) -> bool {
    let has_data = log.group(META_GROUP).raft_state().last.is_some();
    config.cluster.bootstrap
        && (has_data || !somebody_has_a_cluster(&config.cluster.seeds, config.security.api_key.expose(), dialer).await)
}

fn peer_config(config: &ClusterConfig) -> PeerConfig {
    PeerConfig {
        secret: config.secret.expose().map(PeerSecret::new),
        tls: config.tls.as_ref().map(PeerTls::from),
        ..PeerConfig::default()
    }
}

impl From<&ClusterTls> for PeerTls {
    fn from(tls: &ClusterTls) -> Self {
        Self {
            cert: tls.cert_file.clone(),
            key: tls.key_file.clone(),
            ca: tls.ca_file.clone(),
        }
    }
}

fn info_source(me: &NodeInfo, registry: &Arc<MetaPlane>, stream_groups: u16) -> InfoSource {
    let (me, registry) = (me.clone(), registry.clone());
    Arc::new(move || PeerInfo {
        node: me.node,
        name: me.name.clone(),
        cluster: registry.registry().cluster().unwrap_or(0),
        raft_address: me.raft.clone(),
        messaging_address: me.messaging.clone(),
        admin_address: me.admin.clone(),
        version: me.version.clone(),
        stream_groups: Some(stream_groups.into()),
    })
}
