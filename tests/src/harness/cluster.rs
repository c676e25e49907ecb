//! Several server processes that are one cluster.
//!
//! Every node has a directory and ports of its own that it keeps, so that it comes back as the same node. Clusters of one
//! test process run one after the other: what is measured is how long they take, and three servers are enough for a
//! machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio_rustls::rustls::ClientConfig;

use super::network::{Host, Network};
use super::server::{local, spawn, spawn_on};
use super::{Directory, ProcessStat, ServerOptions, SmallDisk, eventually, free_neighbours, free_port, http, tls};

/// A join waits 2 s before it asks, and a group at a time takes the node in.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
const LEADER_WITHIN: Duration = Duration::from_secs(30);
/// The server promises to stop within 10 s, and to hand over what it leads before.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
const LOG_LINES_SHOWN: usize = 40;
const SECRET: &str = "the secret of the test cluster";

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Waits until no other test of this process has a cluster.
pub(super) fn take_turn() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nodes that run, or did. Killed when dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<ClusterNode>,
    options: ServerOptions,
    _turn: MutexGuard<'static, ()>,
}

/// A node, whether it runs or not.
#[derive(Debug)]
pub struct ClusterNode {
    name: String,
    /// A disk of its own for its data, if it has one. Unmounted before its directory goes.
    disk: Option<SmallDisk>,
    directory: Arc<Directory>,
    admin: SocketAddr,
    messaging: SocketAddr,
    raft: SocketAddr,
    voter: bool,
    /// Whether it founds the cluster if it has no data.
    bootstrap: bool,
    /// Whether it is to be in the cluster.
    member: bool,
    secret: String,
    /// What it has for itself.
    settings: Vec<(String, Value)>,
    /// What clients show; empty as long as it was not started.
    api_key: String,
    /// How clients speak TLS with it, if it does.
    tls: Option<Arc<ClientConfig>>,
    /// The host it runs on, if not this one.
    host: Option<Host>,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Stopped,
    Running(Child),
    Paused(Child),
}

impl Cluster {
    /// Starts `count` voters that keep their data on disk, and waits until all of them vote.
    pub fn start(count: usize) -> Self {
        Self::start_with(count, &ServerOptions::disk())
    }

    /// As [`Cluster::start`], with a configuration that all nodes have in common.
    ///
    /// # Panics
    /// When they do not become a cluster in time.
    pub fn start_with(count: usize, options: &ServerOptions) -> Self {
        Self::start_nodes(
            (1..=count).map(|number| ClusterNode::new(number, true)).collect(),
            options,
        )
    }

    /// As [`Cluster::start`], each node on a host of its own.
    ///
    /// # Panics
    /// When they do not become a cluster in time.
    pub fn start_on(network: &Network, count: u8) -> Self {
        let nodes = (1..=count).map(|number| ClusterNode::on(network.host(number)));
        Self::start_nodes(nodes.collect(), &ServerOptions::disk())
    }

    /// As [`Cluster::start_with`], each node with a disk of so many MiB, those with 0 without one of their own. `None` where
    /// mounting is not allowed.
    ///
    /// # Panics
    /// When they do not become a cluster in time.
    pub fn start_on_disks(mib: &[usize], options: &ServerOptions) -> Option<Self> {
        let mut nodes = Vec::new();
        for (number, mib) in (1..).zip(mib) {
            let mut node = ClusterNode::new(number, true);
            if *mib > 0 {
                node.disk = Some(SmallDisk::mount(&node.directory.data(), *mib)?);
            }
            nodes.push(node);
        }
        Some(Self::start_nodes(nodes, options))
    }

    /// As [`Cluster::start`], but the founder is started only after all others run and `meanwhile` has returned.
    ///
    /// # Panics
    /// When they do not become a cluster in time.
    pub fn start_founder_last(count: usize, meanwhile: impl FnOnce(&Self)) -> Self {
        let nodes = (1..=count).map(|number| ClusterNode::new(number, true));
        let mut cluster = Self::of(nodes.collect(), &ServerOptions::disk());
        for index in 1..count {
            cluster.start_node(index);
        }
        meanwhile(&cluster);
        cluster.start_node(0);
        cluster.await_settled();
        cluster
    }

    fn start_nodes(nodes: Vec<ClusterNode>, options: &ServerOptions) -> Self {
        let mut cluster = Self::of(nodes, options);
        for index in 0..cluster.nodes.len() {
            cluster.start_node(index);
        }
        cluster.await_settled();
        cluster
    }

    /// The first of them will found the cluster.
    fn of(nodes: Vec<ClusterNode>, options: &ServerOptions) -> Self {
        let turn = take_turn();
        let mut cluster = Self {
            nodes,
            options: options.clone(),
            _turn: turn,
        };
        cluster.nodes[0].bootstrap = true;
        cluster
    }

    /// Starts one node more, which joins by itself. Does not wait for that.
    pub fn add(&mut self, voter: bool) -> usize {
        let index = self.nodes.len();
        self.nodes.push(ClusterNode::new(index + 1, voter));
        self.start_node(index);
        index
    }

    /// Starts one node more that has another secret, and is not expected to get in.
    pub fn add_stranger(&mut self, secret: &str) -> usize {
        let index = self.nodes.len();
        let mut node = ClusterNode::new(index + 1, true);
        node.secret = secret.to_owned();
        node.member = false;
        self.nodes.push(node);
        self.start_node(index);
        index
    }

    /// Starts a node that does not run, with the addresses that it had. Does not wait until it is ready.
    ///
    /// # Panics
    /// When it runs.
    pub fn start_node(&mut self, index: usize) {
        let seeds: Vec<Value> = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(other, node)| *other != index && node.member)
            .map(|(_, node)| node.admin.to_string().into())
            .collect();
        let node = &mut self.nodes[index];
        assert!(matches!(node.process, Process::Stopped), "{} runs", node.name);
        let options = self
            .options
            .clone()
            .set("server.host", node.admin.ip().to_string())
            .set("server.http_port", node.admin.port())
            .set("server.tcp_port", node.messaging.port())
            .set("cluster.enabled", true)
            .set("cluster.node_id", node.name.as_str())
            .set("cluster.raft_addr", node.raft.to_string())
            .set("cluster.secret", node.secret.as_str())
            .set("cluster.bootstrap", node.bootstrap)
            .set("cluster.non_voter", !node.voter)
            .set("cluster.seeds", Value::Array(seeds));
        let own = node.settings.iter();
        let options = own.fold(options, |options, (key, value)| options.set(key, value.clone()));
        let api_key = options.get("security.api_key").and_then(Value::as_str);
        node.api_key = api_key.unwrap_or_default().to_owned();
        node.tls = options.tls_client().cloned();
        let config = node.directory.path().join("config.json");
        std::fs::write(&config, options.to_json()).expect("write the configuration");
        let (directory, log) = (node.directory.path(), node.log_file());
        node.process = Process::Running(match &node.host {
            None => spawn(&options, &config, directory, &log),
            Some(host) => spawn_on(host, &config, directory, &log),
        });
    }

    /// From its next start on, the node has this for itself, whatever the others have.
    pub fn configure(&mut self, index: usize, key: &str, value: impl Into<Value>) {
        self.nodes[index].settings.push((key.to_owned(), value.into()));
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    /// SIGKILL to all at once, so that nobody can take over.
    pub fn kill_all(&mut self) {
        for node in &self.nodes {
            node.signal(Signal::KILL);
        }
        for node in &mut self.nodes {
            node.kill();
        }
    }

    /// SIGTERM; returns how the process ended.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn terminate(&mut self, index: usize) -> ExitStatus {
        let node = &mut self.nodes[index];
        node.signal(Signal::TERM);
        let Process::Running(child) = &mut node.process else {
            panic!("{} does not run", node.name);
        };
        let what = format!("{} stops", node.name);
        let status = eventually(STOPPED_WITHIN, &what, || child.try_wait().expect("wait for a server"));
        node.process = Process::Stopped;
        status
    }

    /// SIGSTOP: it does nothing more, and its connections stay.
    pub fn pause(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.signal(Signal::STOP);
        if let Process::Running(child) = &node.process {
            let what = format!("{} does nothing more", node.name);
            eventually(STOPPED_WITHIN, &what, || is_stopped(child.id()).then_some(()));
        }
        node.process = match std::mem::replace(&mut node.process, Process::Stopped) {
            Process::Running(child) => Process::Paused(child),
            other => other,
        };
    }

    /// SIGCONT.
    pub fn resume(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.signal(Signal::CONT);
        node.process = match std::mem::replace(&mut node.process, Process::Stopped) {
            Process::Paused(child) => Process::Running(child),
            other => other,
        };
    }

    /// Kills a node and removes its data, as if it had a new disk. What it was called and where it was reached stay.
    ///
    /// # Panics
    /// When the data cannot be removed.
    pub fn wipe(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.kill();
        std::fs::remove_dir_all(node.directory.data()).expect("remove the data of a node");
        // Nobody founds a cluster a second time.
        node.bootstrap = false;
    }

    /// As [`Cluster::wipe`], with the configuration of a founder, whatever it had before.
    ///
    /// # Panics
    /// As there.
    pub fn wipe_founder(&mut self, index: usize) {
        self.wipe(index);
        self.nodes[index].bootstrap = true;
    }

    /// One node more, on a copy of the data of one that does not run, under its name and at other addresses. It is not
    /// expected to get in.
    ///
    /// # Panics
    /// When the data cannot be copied.
    pub fn add_copy(&mut self, original: usize) -> usize {
        let index = self.nodes.len();
        let mut copy = ClusterNode::new(index + 1, self.nodes[original].voter);
        copy.name.clone_from(&self.nodes[original].name);
        copy.member = false;
        let (from, to) = (self.nodes[original].directory.data(), copy.directory.data());
        let copied = std::process::Command::new("cp").arg("-r").arg(from).arg(to).status();
        assert!(copied.expect("copy the data of a node").success());
        self.nodes.push(copy);
        index
    }

    /// Kills a node and gives it another Raft port, as if it came back with another address.
    pub fn relocate(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.kill();
        node.raft = local(free_port());
    }

    /// From now on the node is not expected to be in the cluster.
    pub fn forget(&mut self, index: usize) {
        self.nodes[index].member = false;
    }

    /// From now on the node is expected to be in the cluster again.
    pub fn remember(&mut self, index: usize) {
        self.nodes[index].member = true;
    }

    /// The nodes.
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    /// One of them.
    pub fn node(&self, index: usize) -> &ClusterNode {
        &self.nodes[index]
    }

    /// Where clients reach the nodes that are to be in the cluster.
    pub fn messaging(&self) -> Vec<SocketAddr> {
        let members = self.nodes.iter().filter(|node| node.member);
        members.map(|node| node.messaging).collect()
    }

    /// The node that leads the queue plane, as soon as there is one that nobody knows a newer one than.
    ///
    /// # Panics
    /// When there is none in time.
    pub fn leader(&self) -> usize {
        eventually(LEADER_WITHIN, "a node leads the queue plane", || self.find_leader())
    }

    fn find_leader(&self) -> Option<usize> {
        let running = self.nodes.iter().enumerate().filter(|(_, node)| node.runs());
        let seen: Vec<(usize, Value)> = running
            .filter_map(|(index, node)| Some((index, node.status()?["cluster"].clone())))
            .collect();
        let newest = seen.iter().filter_map(|(_, status)| status["term"].as_u64()).max()?;
        let leads = |status: &Value| status["state"] == "Leader" && status["term"].as_u64() == Some(newest);
        seen.iter().find(|(_, status)| leads(status)).map(|(index, _)| *index)
    }

    /// A node that is in the cluster, runs, and does not lead the queue plane.
    ///
    /// # Panics
    /// When there is none.
    pub fn follower(&self) -> usize {
        let leader = self.leader();
        let follows =
            |(index, node): &(usize, &ClusterNode)| *index != leader && node.member && node.voter && node.runs();
        let follower = self.nodes.iter().enumerate().find(follows);
        follower.expect("a voter that does not lead").0
    }

    /// Waits until all nodes that run and are to be in the cluster agree on leaders and members of all groups.
    ///
    /// # Panics
    /// When they do not in time.
    pub fn await_settled(&self) {
        let mut seen = Vec::new();
        let settled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually(SETTLED_WITHIN, "all nodes agree on the cluster", || {
                seen = self.seen();
                self.is_settled(&seen).then_some(())
            });
        }));
        if let Err(panic) = settled {
            eprintln!("--- last seen: {seen:#?}");
            std::panic::resume_unwind(panic);
        }
    }

    fn seen(&self) -> Vec<Option<Value>> {
        let running = self.nodes.iter().filter(|node| node.member && node.runs());
        running.map(ClusterNode::status).collect()
    }

    fn is_settled(&self, seen: &[Option<Value>]) -> bool {
        let wanted: BTreeMap<&str, bool> = self
            .nodes
            .iter()
            .filter(|node| node.member)
            .map(|node| (node.name.as_str(), node.voter))
            .collect();
        let groups: Vec<&Vec<Value>> = seen
            .iter()
            .filter_map(|status| status.as_ref()?["cluster"]["groups"].as_array())
            .collect();
        let complete = |group: &Value| {
            let members = group["members"].as_array().into_iter().flatten();
            let members: BTreeMap<&str, bool> = members
                .filter_map(|member| Some((member["node_id"].as_str()?, member["voter"].as_bool()?)))
                .collect();
            members == wanted
                && group["leader_id"]
                    .as_str()
                    .is_some_and(|leader| wanted.contains_key(leader))
        };
        let leaders = |groups: &[Value]| -> Vec<Value> {
            groups
                .iter()
                .flat_map(|group| [group["leader_id"].clone(), group["term"].clone()])
                .collect()
        };
        !groups.is_empty()
            && groups.len() == seen.len()
            && groups
                .iter()
                .all(|groups| !groups.is_empty() && groups.iter().all(complete))
            && groups.windows(2).all(|pair| leaders(pair[0]) == leaders(pair[1]))
    }
}

/// Whether all threads of a process have stopped: a signal may reach them a moment after it was sent.
fn is_stopped(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("the threads of a server");
    threads.flatten().all(|thread| {
        // The state comes after the name in parentheses.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    })
}

impl ClusterNode {
    fn new(number: usize, voter: bool) -> Self {
        let (admin, messaging) = free_neighbours();
        Self {
            name: format!("n{number}"),
            disk: None,
            directory: Arc::new(Directory::new()),
            admin: local(admin),
            messaging: local(messaging),
            raft: local(free_port()),
            voter,
            bootstrap: false,
            member: true,
            secret: SECRET.to_owned(),
            settings: Vec::new(),
            api_key: String::new(),
            tls: None,
            host: None,
            process: Process::Stopped,
        }
    }

    fn on(host: Host) -> Self {
        let mut node = Self::new(host.address().octets()[3].into(), true);
        for address in [&mut node.admin, &mut node.messaging, &mut node.raft] {
            address.set_ip(host.address().into());
        }
        node.host = Some(host);
        node
    }

    /// The host that it runs on.
    ///
    /// # Panics
    /// When it is this one.
    pub fn host(&self) -> &Host {
        self.host.as_ref().expect("a host of its own")
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// HTTP.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// gRPC and the binary protocol.
    pub fn messaging(&self) -> SocketAddr {
        self.messaging
    }

    /// Other nodes.
    pub fn raft(&self) -> SocketAddr {
        self.raft
    }

    /// Whether it runs and is not paused.
    pub fn runs(&self) -> bool {
        matches!(self.process, Process::Running(_))
    }

    /// The disk of its own.
    ///
    /// # Panics
    /// When it has none.
    pub fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("a disk of its own")
    }

    /// Figures of the process, if there is one.
    pub fn stat(&self) -> Option<ProcessStat> {
        match &self.process {
            Process::Running(child) | Process::Paused(child) => Some(ProcessStat::of(child.id())),
            Process::Stopped => None,
        }
    }

    /// `/cluster/status`, if it answers.
    pub fn status(&self) -> Option<Value> {
        let headers = [("x-api-key", self.api_key.as_str())];
        let path = "/cluster/status";
        let response = match &self.tls {
            None => http::request(self.admin, "GET", path, &headers, b""),
            Some(client) => tls::connect(self.admin, client)
                .and_then(|stream| http::request_over(stream, ("GET", path), &headers, b"")),
        };
        let response = response.ok()?;
        (response.status == 200).then(|| response.json())
    }

    /// How the process ended, if it did by itself.
    ///
    /// # Panics
    /// When it was stopped.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        match &mut self.process {
            Process::Running(child) | Process::Paused(child) => child.try_wait().expect("wait for a server"),
            Process::Stopped => panic!("{} was stopped", self.name),
        }
    }

    /// Where its data lies.
    pub fn data(&self) -> PathBuf {
        self.directory.data()
    }

    /// What it wrote since its first start.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_file()).unwrap_or_default()).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    fn signal(&self, signal: Signal) {
        if let Process::Running(child) | Process::Paused(child) = &self.process {
            let pid = Pid::from_child(child);
            kill_process(pid, signal).unwrap_or_else(|error| panic!("signal {}: {error}", self.name));
        }
    }

    fn kill(&mut self) {
        if let Process::Running(mut child) | Process::Paused(mut child) =
            std::mem::replace(&mut self.process, Process::Stopped)
        {
            // It fails only when the process is gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.kill();
            if std::thread::panicking() {
                let log = node.log();
                let lines: Vec<&str> = log.lines().collect();
                let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
                eprintln!("--- {}, end of its log\n{}\n---", node.name, shown.join("\n"));
            }
        }
    }
}
