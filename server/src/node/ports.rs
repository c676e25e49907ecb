//! The ports of a node, open before anybody is served on them.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use super::NodeError;
use crate::config::Config;
use crate::doors::port::listen_on;

/// Where clients and other nodes will be served.
pub(super) struct Ports {
    pub(super) messaging: TcpListener,
    pub(super) admin: TcpListener,
    /// For other nodes, if there may be any.
    pub(super) raft: Option<TcpListener>,
}

impl Ports {
    pub(super) async fn open(config: &Config) -> Result<Self, NodeError> {
        let messaging = listen(&config.server.host, config.server.tcp_port).await?;
        let admin = listen(&config.server.host, config.server.http_port).await?;
        let raft = match config.cluster.enabled {
            true => Some(listen(&config.cluster.raft_host, config.cluster.raft_port).await?),
            false => None,
        };
        Ok(Self { messaging, admin, raft })
    }
}

async fn listen(host: &str, port: u16) -> Result<TcpListener, NodeError> {
    listen_on(host, port).await.map_err(|source| NodeError::Listen {
        address: format!("{host}:{port}"),
        source,
    })
}

pub(super) fn local(listener: &TcpListener) -> Result<SocketAddr, NodeError> {
    listener.local_addr().map_err(|source| NodeError::Listen {
        address: "a port".to_owned(),
        source,
    })
}
