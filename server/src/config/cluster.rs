//! Section `cluster`: how this node finds the others, and what it tells them about itself.

use std::path::PathBuf;
use std::time::Duration;

use super::checked::{ServerConfig, StorageMode, number};
use super::duration;
use super::error::ConfigError;
use super::keys as key;
use super::layers::Settings;
use super::parse::{self, is_wildcard};
use super::secret::ClusterSecret;

/// The longest election timeout has at least so many heartbeats in it: one that is lost or late is no reason to vote.
const HEARTBEATS_MIN: u32 = 3;
/// The shortest election timeout, as a part of the longest. Nodes draw theirs in between, so that two of them seldom
/// stand at once.
const ELECTION_SPREAD: (u32, u32) = (4, 7);

/// Section `cluster`. Unless `enabled`, the rest means nothing.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Whether this node is one of several.
    pub enabled: bool,
    /// Name of this node, unique in the cluster.
    pub node_id: String,
    /// Address or name that the port for other nodes is opened on, an IPv6 address without brackets.
    pub raft_host: String,
    /// Port for other nodes; 0 takes a free one.
    pub raft_port: u16,
    /// What others dial to reach any port of this node, an IPv6 address without brackets. No wildcard.
    pub advertise_host: String,
    /// Whether this node founds the cluster if it has no state.
    pub bootstrap: bool,
    /// `host:adminport` of nodes to ask for admission, in this order, without duplicates.
    pub seeds: Vec<String>,
    /// Whether this node never votes.
    pub non_voter: bool,
    /// Whether this node leaves the cluster when it is stopped.
    pub leave_on_shutdown: bool,
    /// What nodes prove themselves with.
    pub secret: ClusterSecret,
    /// Mutual TLS between nodes.
    pub tls: Option<ClusterTls>,
    /// Between two signs of life of a leader.
    pub heartbeat: Duration,
    /// Shortest silence of the leader after which a node stands for election.
    pub election_timeout_min: Duration,
    /// The longest.
    pub election_timeout_max: Duration,
    /// Entries between two checkpoints of a group, if their bytes do not ask for one before.
    pub snapshot_threshold_entries: u64,
    /// For an entry to be committed.
    pub proposal_timeout: Duration,
    /// Voters that have a message before its publish is answered, if that is more than a majority.
    pub min_in_sync: usize,
    /// Groups that carry the messaging plane.
    pub stream_groups: u16,
}

/// Files of mutual TLS between nodes, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterTls {
    /// Certificate of this node.
    pub cert_file: PathBuf,
    /// Its private key.
    pub key_file: PathBuf,
    /// Authorities whose nodes are let in.
    pub ca_file: PathBuf,
}

impl ClusterConfig {
    /// `port` of this node as others dial it.
    #[must_use]
    pub fn advertised(&self, port: u16) -> String {
        let host = &self.advertise_host;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    pub(super) fn check(settings: &Settings, server: &ServerConfig) -> Result<Self, ConfigError> {
        let enabled = settings.get(&key::CLUSTER_ENABLED)?;
        let listen = settings.get(&key::CLUSTER_RAFT_ADDR)?;
        let node_id = node_id(settings, enabled)?;
        let heartbeat = settings.get(&key::CLUSTER_HEARTBEAT)?;
        let election_timeout_max = election_timeout(settings, heartbeat)?;
        let cluster = Self {
            enabled,
            advertise_host: advertise_host(settings, enabled, &listen.host, &server.host)?,
            bootstrap: match settings.get(&key::BOOTSTRAP_NODE_ID)? {
                Some(id) => id == node_id,
                None => settings.get(&key::CLUSTER_BOOTSTRAP)?,
            },
            node_id,
            raft_host: listen.host,
            raft_port: listen.port,
            seeds: seeds(settings)?,
            non_voter: settings.get(&key::CLUSTER_NON_VOTER)?,
            leave_on_shutdown: settings.get(&key::CLUSTER_LEAVE_ON_SHUTDOWN)?,
            secret: settings.get(&key::CLUSTER_SECRET)?,
            tls: ClusterTls::check(settings)?,
            heartbeat,
            election_timeout_min: election_timeout_max * ELECTION_SPREAD.0 / ELECTION_SPREAD.1,
            election_timeout_max,
            snapshot_threshold_entries: number(settings, &key::CLUSTER_SNAPSHOT_THRESHOLD)?,
            proposal_timeout: settings.get(&key::CLUSTER_PROPOSAL_TIMEOUT)?,
            min_in_sync: number(settings, &key::CLUSTER_MIN_IN_SYNC)?,
            stream_groups: number(settings, &key::CLUSTER_STREAM_GROUPS)?,
        };
        if enabled {
            cluster.check_groups(settings)?;
            cluster.check_ports(settings, server)?;
            cluster.check_role(settings)?;
        }
        Ok(cluster)
    }

    /// The groups of the messaging plane are not those without a use.
    fn check_groups(&self, settings: &Settings) -> Result<(), ConfigError> {
        if self.stream_groups > 0 && settings.get(&key::STREAM_ENABLED)? {
            return Err(ConfigError::Contradiction {
                key: key::CLUSTER_STREAM_GROUPS.name,
                value: self.stream_groups.to_string(),
                other: key::STREAM_ENABLED.name,
                other_value: "true".to_owned(),
                rule: "the number of groups is that of messaging.stream.groups then",
            });
        }
        Ok(())
    }

    fn check_ports(&self, settings: &Settings, server: &ServerConfig) -> Result<(), ConfigError> {
        let others = [
            (&key::SERVER_HTTP_PORT, server.http_port),
            (&key::SERVER_TCP_PORT, server.tcp_port),
        ];
        match others
            .into_iter()
            .find(|(_, port)| *port == self.raft_port && *port != 0)
        {
            None => Ok(()),
            Some((other, _)) => Err(settings.contradiction(&key::CLUSTER_RAFT_ADDR, other, "the ports have to differ")),
        }
    }

    fn check_role(&self, settings: &Settings) -> Result<(), ConfigError> {
        const RULE: &str = "a node that founds a cluster has a vote";
        if !(self.bootstrap && self.non_voter) {
            return Ok(());
        }
        let other = &key::CLUSTER_NON_VOTER;
        Err(if settings.has(&key::BOOTSTRAP_NODE_ID) {
            settings.contradiction(&key::BOOTSTRAP_NODE_ID, other, RULE)
        } else {
            settings.contradiction(&key::CLUSTER_BOOTSTRAP, other, RULE)
        })
    }

    /// What is allowed and yet may surprise.
    pub(super) fn warnings(&self, storage: StorageMode) -> Vec<String> {
        let meant = self.bootstrap || !self.seeds.is_empty();
        let said = if self.enabled {
            [
                (
                    storage == StorageMode::Memory,
                    "storage.mode is memory: a node that stops forgets everything, and what is stored is lost when all \
                     nodes of the cluster stop",
                ),
                (
                    !meant,
                    "neither cluster.bootstrap nor a seed is given: unless its data directory knows a cluster already, \
                     this node finds none by itself",
                ),
                (
                    self.secret.expose().is_none() && self.tls.is_none(),
                    "neither cluster.secret nor cluster.tls is given: whoever reaches cluster.raft_addr counts as a \
                     node of the cluster",
                ),
            ]
            .to_vec()
        } else {
            vec![(
                meant,
                "cluster.enabled is false: cluster.bootstrap and seeds have no effect",
            )]
        };
        let said = said.into_iter().filter(|(applies, _)| *applies);
        said.map(|(_, sentence)| sentence.to_owned()).collect()
    }
}

impl ClusterTls {
    fn check(settings: &Settings) -> Result<Option<Self>, ConfigError> {
        let [cert, key, ca] = [
            &key::CLUSTER_TLS_CERT_FILE,
            &key::CLUSTER_TLS_KEY_FILE,
            &key::CLUSTER_TLS_CA_FILE,
        ]
        .map(|file| settings.get(file).map(|path| (file, path)));
        let files = [cert?, key?, ca?];
        let given = files.iter().find(|(_, path)| path.is_some());
        let missing = files.iter().find(|(_, path)| path.is_none());
        if let (Some((given, _)), Some((missing, _))) = (given, missing) {
            return Err(settings.contradiction(*given, *missing, "TLS between nodes needs all three files"));
        }
        let [(_, cert), (_, key), (_, ca)] = files;
        Ok(cert.zip(key).zip(ca).map(|((cert_file, key_file), ca_file)| Self {
            cert_file,
            key_file,
            ca_file,
        }))
    }
}

/// The name that is written, or that of the host.
fn node_id(settings: &Settings, enabled: bool) -> Result<String, ConfigError> {
    let written = settings.get(&key::CLUSTER_NODE_ID)?;
    let name = written.or_else(|| parse::node_name(&host_name()).flatten());
    match name {
        None if enabled => Err(settings.refusal(&key::CLUSTER_NODE_ID)),
        name => Ok(name.unwrap_or_default()),
    }
}

/// The host that is written, or the first that others can dial: that of the Raft port, that of the other ports, the name
/// of the host.
fn advertise_host(settings: &Settings, enabled: bool, raft: &str, server: &str) -> Result<String, ConfigError> {
    if let Some(written) = settings.get(&key::CLUSTER_ADVERTISE_HOST)? {
        return Ok(written);
    }
    if let Some(host) = [raft, server].into_iter().find(|host| !is_wildcard(host)) {
        return Ok(host.to_owned());
    }
    match parse::advertised(&host_name()).flatten() {
        None if enabled => Err(settings.refusal(&key::CLUSTER_ADVERTISE_HOST)),
        host => Ok(host.unwrap_or_default()),
    }
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The longest.
fn election_timeout(settings: &Settings, heartbeat: Duration) -> Result<Duration, ConfigError> {
    let longest = settings.get(&key::CLUSTER_ELECTION_TIMEOUT)?;
    if longest < heartbeat * HEARTBEATS_MIN {
        return Err(ConfigError::Contradiction {
            key: key::CLUSTER_ELECTION_TIMEOUT.name,
            value: duration::format(longest),
            other: key::CLUSTER_HEARTBEAT.name,
            other_value: duration::format(heartbeat),
            rule: "it has to be at least three heartbeats long",
        });
    }
    Ok(longest)
}

/// The flag first, then the variables and the file: what was written last for this one start is asked first.
fn seeds(settings: &Settings) -> Result<Vec<String>, ConfigError> {
    let mut seeds = Vec::new();
    for source in [&key::JOIN_FLAG, &key::JOIN_VARIABLE, &key::CLUSTER_SEEDS] {
        for seed in settings.get(source)? {
            if !seeds.contains(&seed) {
                seeds.push(seed);
            }
        }
    }
    Ok(seeds)
}
