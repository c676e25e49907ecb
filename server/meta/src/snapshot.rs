//! The registry as bytes.

use std::collections::BTreeMap;

use boltq_core::DecodeError;
use boltq_core::codec::{Reader, put_len};
use bytes::{BufMut, BytesMut};

use crate::command::{put_node, read_node};
use crate::registry::Registry;

const FORMAT: u8 = 1;
/// Id, role and five lengths.
const NODE_BYTES_MIN: usize = 8 + 1 + 5 * 4;

pub(crate) fn write(registry: &Registry) -> Vec<u8> {
    let mut out = BytesMut::new();
    out.put_u8(FORMAT);
    out.put_u64_le(registry.cluster.unwrap_or(0));
    out.put_u64_le(registry.changes);
    put_len(&mut out, registry.nodes.len());
    for node in registry.nodes.values() {
        put_node(&mut out, node);
    }
    out.to_vec()
}

pub(crate) fn read(bytes: &[u8]) -> Result<Registry, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.u8("format of a registry")? {
        FORMAT => {}
        other => {
            return Err(DecodeError::Unknown {
                what: "format of a registry",
                value: u64::from(other),
            });
        }
    }
    let cluster = Some(reader.u64("cluster id")?).filter(|cluster| *cluster != 0);
    let changes = reader.u64("changes of a registry")?;
    let mut nodes = BTreeMap::new();
    for _ in 0..reader.count(NODE_BYTES_MIN, "nodes")? {
        let node = read_node(&mut reader)?;
        nodes.insert(node.node, node);
    }
    reader.end("registry")?;
    Ok(Registry {
        cluster,
        changes,
        nodes,
    })
}
