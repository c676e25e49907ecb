//! Our own bytes for what openraft wants kept: votes, memberships, and what a checkpoint has to know of them.
//!
//! Never a dump of an openraft type: its versions may change theirs. Every encoding starts with a format byte.

use std::collections::{BTreeMap, BTreeSet};

use boltq_core::codec::{Reader, put_bytes, put_len};
use boltq_core::{DecodeError, LogIndex, NodeId, Term};
use boltq_log::{Entry, EntryId};
use bytes::{BufMut, Bytes, BytesMut};
use openraft::EntryPayload;
use openraft::impls::BasicNode;
use openraft::impls::leader_id_adv::LeaderId;

use crate::types::{EntryData, LogId, Membership, RaftEntry, StoredMembership, Vote};

const FORMAT: u8 = 1;

const KIND_BLANK: u8 = 0;
const KIND_COMMANDS: u8 = 1;
const KIND_MEMBERSHIP: u8 = 2;

pub(crate) fn to_log_id(id: EntryId) -> LogId {
    LogId::new(
        LeaderId {
            term: id.term.0,
            node_id: id.leader.0,
        },
        id.index.0,
    )
}

pub(crate) fn to_entry_id(id: &LogId) -> EntryId {
    let leader = id.committed_leader_id();
    EntryId {
        term: Term(leader.term),
        leader: NodeId(leader.node_id),
        index: LogIndex(id.index()),
    }
}

pub(crate) fn to_entry(entry: RaftEntry) -> Entry {
    let id = to_entry_id(&entry.log_id);
    match entry.payload {
        EntryPayload::Blank => Entry {
            id,
            kind: KIND_BLANK,
            data: Bytes::new(),
        },
        EntryPayload::Normal(EntryData { data, .. }) => Entry {
            id,
            kind: KIND_COMMANDS,
            data,
        },
        EntryPayload::Membership(membership) => {
            let mut out = BytesMut::new();
            write_membership(&membership, &mut out);
            Entry {
                id,
                kind: KIND_MEMBERSHIP,
                data: out.freeze(),
            }
        }
    }
}

pub(crate) fn to_raft_entry(entry: Entry) -> Result<RaftEntry, DecodeError> {
    let payload = match entry.kind {
        KIND_BLANK if entry.data.is_empty() => EntryPayload::Blank,
        KIND_BLANK => {
            return Err(DecodeError::Invalid {
                what: "entry",
                why: "one without commands has data",
            });
        }
        KIND_COMMANDS => EntryPayload::Normal(EntryData::new(entry.data)),
        KIND_MEMBERSHIP => {
            let mut reader = Reader::new(&entry.data);
            let membership = read_membership(&mut reader)?;
            reader.end("membership")?;
            EntryPayload::Membership(membership)
        }
        kind => {
            return Err(DecodeError::Unknown {
                what: "entry kind",
                value: u64::from(kind),
            });
        }
    };
    Ok(RaftEntry {
        log_id: to_log_id(entry.id),
        payload,
    })
}

pub(crate) fn write_vote(vote: &Vote) -> Bytes {
    let mut out = BytesMut::with_capacity(18);
    out.put_u8(FORMAT);
    out.put_u64_le(vote.leader_id.term);
    out.put_u64_le(vote.leader_id.node_id);
    out.put_u8(u8::from(vote.committed));
    out.freeze()
}

pub(crate) fn read_vote(bytes: &[u8]) -> Result<Vote, DecodeError> {
    let mut reader = Reader::new(bytes);
    check_format(&mut reader, "vote format")?;
    let (term, node) = (reader.u64("vote term")?, reader.u64("vote node")?);
    match reader.u8("vote state")? {
        0 => Ok(Vote::new(term, node)),
        1 => Ok(Vote::new_committed(term, node)),
        state => Err(DecodeError::Unknown {
            what: "vote state",
            value: u64::from(state),
        }),
    }
}

/// What a checkpoint says of the membership that was in force.
pub(crate) fn write_stored_membership(stored: &StoredMembership) -> Vec<u8> {
    let mut out = BytesMut::new();
    match stored.log_id() {
        Some(id) => {
            let id = to_entry_id(id);
            out.put_u8(1);
            out.put_u64_le(id.term.0);
            out.put_u64_le(id.leader.0);
            out.put_u64_le(id.index.0);
        }
        None => out.put_u8(0),
    }
    write_membership(stored.membership(), &mut out);
    out.to_vec()
}

pub(crate) fn read_stored_membership(bytes: &[u8]) -> Result<StoredMembership, DecodeError> {
    let mut reader = Reader::new(bytes);
    let id = match reader.u8("membership position")? {
        0 => None,
        1 => {
            let (term, node) = (reader.u64("membership term")?, reader.u64("membership leader")?);
            Some(LogId::new(
                LeaderId { term, node_id: node },
                reader.u64("membership index")?,
            ))
        }
        other => {
            return Err(DecodeError::Unknown {
                what: "membership position",
                value: u64::from(other),
            });
        }
    };
    let stored = StoredMembership::new(id, read_membership(&mut reader)?);
    reader.end("membership")?;
    Ok(stored)
}

fn write_membership(membership: &Membership, out: &mut BytesMut) {
    out.put_u8(FORMAT);
    let configs = membership.get_joint_config();
    put_len(out, configs.len());
    for voters in configs {
        put_len(out, voters.len());
        for voter in voters {
            out.put_u64_le(*voter);
        }
    }
    put_len(out, membership.nodes().count());
    for (id, node) in membership.nodes() {
        out.put_u64_le(*id);
        put_bytes(out, node.addr.as_bytes());
    }
}

fn read_membership(reader: &mut Reader<'_>) -> Result<Membership, DecodeError> {
    check_format(reader, "membership format")?;
    let mut configs = Vec::new();
    for _ in 0..reader.count(4, "membership configs")? {
        let mut voters = BTreeSet::new();
        for _ in 0..reader.count(8, "membership voters")? {
            let voter = reader.u64("voter")?;
            check_order(voters.last(), voter)?;
            voters.insert(voter);
        }
        configs.push(voters);
    }
    let mut nodes = BTreeMap::new();
    for _ in 0..reader.count(12, "membership nodes")? {
        let id = reader.u64("node")?;
        check_order(nodes.last_key_value().map(|(last, _)| last), id)?;
        nodes.insert(
            id,
            BasicNode {
                addr: reader.str("node address")?.to_owned(),
            },
        );
    }
    // A default membership has no configuration at all, which `Membership::new` refuses.
    if configs.is_empty() && nodes.is_empty() {
        return Ok(Membership::default());
    }
    Membership::new(configs, nodes).map_err(|_| DecodeError::Invalid {
        what: "membership",
        why: "a voter is not among the nodes",
    })
}

/// A membership has one form only.
fn check_order(last: Option<&u64>, next: u64) -> Result<(), DecodeError> {
    if last.is_none_or(|last| *last < next) {
        return Ok(());
    }
    Err(DecodeError::Invalid {
        what: "membership",
        why: "its nodes are not in order",
    })
}

fn check_format(reader: &mut Reader<'_>, what: &'static str) -> Result<(), DecodeError> {
    match reader.u8(what)? {
        FORMAT => Ok(()),
        other => Err(DecodeError::Unknown {
            what,
            value: u64::from(other),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn votes_come_back() {
        for vote in [Vote::new(3, 9), Vote::new_committed(u64::MAX, 0)] {
            assert_eq!(read_vote(&write_vote(&vote)), Ok(vote));
        }
        assert!(read_vote(&write_vote(&Vote::new(3, 9))[..17]).is_err());
    }

    #[test]
    fn memberships_come_back() {
        let node = |addr: &str| BasicNode { addr: addr.to_owned() };
        let nodes = BTreeMap::from([(1, node("a:1")), (2, node("b:2")), (3, node(""))]);
        let joint = vec![BTreeSet::from([1]), BTreeSet::from([1, 2])];
        let membership = Membership::new(joint, nodes).unwrap();
        let stored = StoredMembership::new(Some(LogId::new(LeaderId { term: 1, node_id: 2 }, 3)), membership);
        let bytes = write_stored_membership(&stored);
        assert_eq!(read_stored_membership(&bytes), Ok(stored));
        for end in 0..bytes.len() {
            assert!(read_stored_membership(&bytes[..end]).is_err(), "{end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(read_stored_membership(&longer).is_err());
        let empty = StoredMembership::default();
        assert_eq!(read_stored_membership(&write_stored_membership(&empty)), Ok(empty));
    }
}
