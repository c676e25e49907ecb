//! The servers that are measured.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::cluster;
use super::load::Failure;
use crate::harness::{Cluster, ClusterNode, ProcessStat, Server, ServerOptions, eventually, free_port};

/// A transport without a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Grpc,
    Tcp,
}

/// Something that answers on a port, in processes of its own.
pub(super) enum Target {
    Broker(Server),
    Cluster { cluster: Cluster, leader: usize },
    Bare(BareServer),
}

impl Target {
    /// A new broker on a new directory.
    pub(super) fn broker(options: &ServerOptions) -> Result<Self, Failure> {
        Ok(Self::Broker(start_broker(options)?))
    }

    /// A new cluster on new directories, spoken to at its leader.
    pub(super) async fn cluster(options: &ServerOptions) -> Result<Self, Failure> {
        let cluster = cluster::start(options).await?;
        let leader = cluster.leader();
        Ok(Self::Cluster { cluster, leader })
    }

    /// A new process of this program that serves the transport alone.
    pub(super) fn bare(transport: Transport) -> Result<Self, Failure> {
        Ok(Self::Bare(BareServer::start(transport)?))
    }

    pub(super) fn address(&self) -> SocketAddr {
        match self {
            Self::Broker(server) => server.messaging(),
            Self::Cluster { cluster, leader } => cluster.node(*leader).messaging(),
            Self::Bare(server) => server.address,
        }
    }

    /// Of all processes.
    pub(super) fn stats(&self) -> Vec<ProcessStat> {
        match self {
            Self::Broker(server) => vec![server.stat()],
            Self::Cluster { cluster, .. } => cluster.nodes().iter().filter_map(ClusterNode::stat).collect(),
            Self::Bare(server) => vec![ProcessStat::of(server.child.id())],
        }
    }
}

/// Starts a broker, with its log in the error if that fails.
pub(super) fn start_broker(options: &ServerOptions) -> Result<Server, Failure> {
    let directory = std::sync::Arc::default();
    Server::start_in(options, directory).map_err(|error| error.to_string().into())
}

/// Killed when dropped.
pub(super) struct BareServer {
    child: Child,
    address: SocketAddr,
}

impl BareServer {
    fn start(transport: Transport) -> Result<Self, Failure> {
        let command = match transport {
            Transport::Grpc => "bare-grpc",
            Transport::Tcp => "bare-tcp",
        };
        let port = free_port();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let child = Command::new(std::env::current_exe()?)
            .args([command, "--port", &port.to_string()])
            .stdin(Stdio::null())
            .spawn()?;
        let server = Self { child, address };
        eventually(Duration::from_secs(10), "the bare server listens", || {
            std::net::TcpStream::connect(address).ok()
        });
        Ok(server)
    }
}

impl Drop for BareServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
