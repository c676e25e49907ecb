//! Commands, as they stand in the log.

use boltq_core::codec::{Reader, put_bytes};
use boltq_core::{DecodeError, NodeId};
use bytes::{BufMut, BytesMut};

use crate::registry::NodeInfo;

const FOUND: u8 = 1;
const REGISTER: u8 = 2;
const UNREGISTER: u8 = 3;

pub(crate) enum Command {
    Found(u64),
    Register(NodeInfo),
    Unregister(NodeId),
}

/// Gives the cluster its id, unless it has one.
pub fn found(out: &mut BytesMut, cluster: u64) {
    out.put_u8(FOUND);
    out.put_u64_le(cluster);
}

/// Adds a node, or replaces what is known of it.
pub fn register(out: &mut BytesMut, node: &NodeInfo) {
    out.put_u8(REGISTER);
    put_node(out, node);
}

/// Removes a node.
pub fn unregister(out: &mut BytesMut, node: NodeId) {
    out.put_u8(UNREGISTER);
    out.put_u64_le(node.0);
}

impl Command {
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let command = match reader.u8("command of the registry")? {
            FOUND => Self::Found(reader.u64("cluster id")?),
            REGISTER => Self::Register(read_node(&mut reader)?),
            UNREGISTER => Self::Unregister(NodeId(reader.u64("node")?)),
            other => {
                return Err(DecodeError::Unknown {
                    what: "command of the registry",
                    value: u64::from(other),
                });
            }
        };
        reader.end("command of the registry")?;
        Ok(command)
    }
}

pub(crate) fn put_node(out: &mut BytesMut, node: &NodeInfo) {
    out.put_u64_le(node.node.0);
    out.put_u8(u8::from(node.voter));
    for text in [&node.name, &node.raft, &node.messaging, &node.admin, &node.version] {
        put_bytes(out, text.as_bytes());
    }
}

pub(crate) fn read_node(reader: &mut Reader<'_>) -> Result<NodeInfo, DecodeError> {
    let node = NodeId(reader.u64("node")?);
    let voter = match reader.u8("role of a node")? {
        0 => false,
        1 => true,
        other => {
            return Err(DecodeError::Unknown {
                what: "role of a node",
                value: u64::from(other),
            });
        }
    };
    let mut text = |what| reader.str(what).map(str::to_owned);
    Ok(NodeInfo {
        node,
        voter,
        name: text("name of a node")?,
        raft: text("raft address")?,
        messaging: text("messaging address")?,
        admin: text("admin address")?,
        version: text("version of a node")?,
    })
}
