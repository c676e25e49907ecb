//! Commands that one node passes on to another, and the answers.
//!
//! ```text
//! call      u8 format, 1; u32 group; u8 kind (0: they store something, 1: they make room); commands, each: u32 length, bytes
//! answer    u8 format, 1; u8 0: outcomes, each as below; otherwise a failure
//! failure   u8 1 not the leader, 2 unconfirmed, 3 the disk is full, 4 stopped, 5 refused,
//!              6 too few nodes, 7 not in sync; [text, for 5 and 6]
//! outcome   u8 1 topic: u8 whether it is new, terms; 2 no topic; 3 adopted; 4 deleted: u64 records;
//!              5 appended: u64 stream, u64 first, u32 count, u64 timestamp, u8 whether it is repeated;
//!              6 no such partition: u32 partitions; 7 stale; 8 too many keys;
//!              9 committed: u32 count, each: u8 0 at: u64 sequence; 1 no partition; 2 too many;
//!              10 forgotten: u32; 11 trimmed: u64 records, u8 whether there are more; 12 redacted: u8 whether it was there;
//!              13 no record
//! terms     u64 created, u64 changed, u32 partitions, u64 milliseconds, u64 bytes
//! ```
//!
//! Integers are little-endian. Nodes of other versions know these numbers: they are not used again.

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, GroupId, Seq, StreamId};
use boltq_stream::{AppendRefusal, Appended, Commit, Outcome, Retention, Settings, Terms, Version};
use bytes::{BufMut, Bytes, BytesMut};

use crate::error::StreamError;
use crate::proposing::Kind;

const FORMAT: u8 = 1;

/// A call as it is read.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) group: GroupId,
    pub(crate) kind: Kind,
    pub(crate) commands: &'a [u8],
}

/// Why the commands of a call were not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    NotLeader,
    Unconfirmed,
    StorageFull,
    Stopped,
    NotEnoughReplicas(String),
    NotInSync,
    Refused(String),
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::NoLeader { .. } => Self::NotLeader,
            StreamError::Unconfirmed => Self::Unconfirmed,
            StreamError::StorageFull => Self::StorageFull,
            StreamError::Stopped => Self::Stopped,
            StreamError::NotEnoughReplicas(why) => Self::NotEnoughReplicas(why),
            StreamError::NotInSync => Self::NotInSync,
            other => Self::Refused(other.to_string()),
        }
    }
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<Failure> for StreamError {
    fn from(failure: Failure) -> Self {
        match failure {
            // A leader that stops may have proposed it.
            Failure::NotLeader | Failure::Unconfirmed | Failure::Stopped => Self::Unconfirmed,
            Failure::StorageFull => Self::StorageFull,
            Failure::NotEnoughReplicas(why) => Self::NotEnoughReplicas(why),
            Failure::NotInSync => Self::NotInSync,
            Failure::Refused(why) => Self::InvalidArgument(why),
        }
    }
}

pub(crate) fn encode_call(group: GroupId, kind: Kind, commands: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(6 + commands.len());
    out.put_u8(FORMAT);
    out.put_u32_le(group.0);
    out.put_u8(u8::from(kind == Kind::Keeping));
    out.put_slice(commands);
    out.freeze()
}

pub(crate) fn decode_call(bytes: &[u8]) -> Result<Call<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    read_format(&mut reader)?;
    Ok(Call {
        group: GroupId(reader.u32("group")?),
        kind: match read_flag(&mut reader, "kind of a call")? {
            false => Kind::Storing,
            true => Kind::Keeping,
        },
        commands: reader.rest(),
    })
}

pub(crate) fn encode_answer(answer: &Result<Vec<Outcome>, Failure>) -> Bytes {
    let mut out = BytesMut::new();
    out.put_u8(FORMAT);
    match answer {
        Ok(outcomes) => {
            out.put_u8(0);
            outcomes.iter().for_each(|outcome| put_outcome(&mut out, outcome));
        }
        Err(failure) => {
            out.put_u8(match failure {
                Failure::NotLeader => 1,
                Failure::Unconfirmed => 2,
                Failure::StorageFull => 3,
                Failure::Stopped => 4,
                Failure::Refused(_) => 5,
                Failure::NotEnoughReplicas(_) => 6,
                Failure::NotInSync => 7,
            });
            if let Failure::Refused(why) | Failure::NotEnoughReplicas(why) = failure {
                out.put_slice(why.as_bytes());
            }
        }
    }
    out.freeze()
}

pub(crate) fn decode_answer(bytes: &[u8]) -> Result<Result<Vec<Outcome>, Failure>, DecodeError> {
    const WHAT: &str = "answer to a call";
    let mut reader = Reader::new(bytes);
    read_format(&mut reader)?;
    let failure = match reader.u8(WHAT)? {
        0 => {
            let mut outcomes = Vec::new();
            while !reader.is_empty() {
                outcomes.push(read_outcome(&mut reader)?);
            }
            return Ok(Ok(outcomes));
        }
        1 => Failure::NotLeader,
        2 => Failure::Unconfirmed,
        3 => Failure::StorageFull,
        4 => Failure::Stopped,
        5 => Failure::Refused(String::from_utf8_lossy(reader.rest()).into_owned()),
        6 => Failure::NotEnoughReplicas(String::from_utf8_lossy(reader.rest()).into_owned()),
        7 => Failure::NotInSync,
        other => return unknown(WHAT, other),
    };
    reader.end(WHAT)?;
    Ok(Err(failure))
}

fn put_outcome(out: &mut BytesMut, outcome: &Outcome) {
    match outcome {
        Outcome::Topic { new, terms } => {
            out.put_slice(&[1, u8::from(*new)]);
            put_terms(out, terms);
        }
        Outcome::NoTopic => out.put_u8(2),
        Outcome::Adopted => out.put_u8(3),
        Outcome::Deleted(records) => {
            out.put_u8(4);
            out.put_u64_le(*records);
        }
        Outcome::Appended(appended) => {
            out.put_u8(5);
            out.put_u64_le(appended.stream.0);
            out.put_u64_le(appended.first.0);
            out.put_u32_le(appended.count);
            out.put_u64_le(appended.timestamp_ns);
            out.put_u8(u8::from(appended.duplicate));
        }
        Outcome::Refused(AppendRefusal::NoPartition { partitions }) => {
            out.put_u8(6);
            out.put_u32_le(*partitions);
        }
        Outcome::Refused(AppendRefusal::Stale) => out.put_u8(7),
        Outcome::Refused(AppendRefusal::ClaimsFull) => out.put_u8(8),
        Outcome::Committed(commits) => {
            out.put_u8(9);
            codec::put_len(out, commits.len());
            commits.iter().for_each(|commit| put_commit(out, *commit));
        }
        Outcome::Forgotten(count) => {
            out.put_u8(10);
            out.put_u32_le(*count);
        }
        Outcome::Trimmed { records, more } => {
            out.put_u8(11);
            out.put_u64_le(*records);
            out.put_u8(u8::from(*more));
        }
        Outcome::Redacted(was_there) => out.put_slice(&[12, u8::from(*was_there)]),
        Outcome::NoRecord => out.put_u8(13),
    }
}

fn put_commit(out: &mut BytesMut, commit: Commit) {
    match commit {
        Commit::At(seq) => {
            out.put_u8(0);
            out.put_u64_le(seq.0);
        }
        Commit::NoPartition => out.put_u8(1),
        Commit::Full => out.put_u8(2),
    }
}

fn put_terms(out: &mut BytesMut, terms: &Terms) {
    out.put_u64_le(terms.created.0);
    out.put_u64_le(terms.changed.0);
    out.put_u32_le(terms.settings.partitions);
    out.put_u64_le(terms.settings.retention.max_age_ms);
    out.put_u64_le(terms.settings.retention.max_bytes);
}

fn read_outcome(reader: &mut Reader<'_>) -> Result<Outcome, DecodeError> {
    const WHAT: &str = "outcome";
    Ok(match reader.u8(WHAT)? {
        1 => Outcome::Topic {
            new: read_flag(reader, WHAT)?,
            terms: read_terms(reader)?,
        },
        2 => Outcome::NoTopic,
        3 => Outcome::Adopted,
        4 => Outcome::Deleted(reader.u64(WHAT)?),
        5 => Outcome::Appended(Appended {
            stream: StreamId(reader.u64(WHAT)?),
            first: Seq(reader.u64(WHAT)?),
            count: reader.u32(WHAT)?,
            timestamp_ns: reader.u64(WHAT)?,
            duplicate: read_flag(reader, WHAT)?,
        }),
        6 => Outcome::Refused(AppendRefusal::NoPartition {
            partitions: reader.u32(WHAT)?,
        }),
        7 => Outcome::Refused(AppendRefusal::Stale),
        8 => Outcome::Refused(AppendRefusal::ClaimsFull),
        9 => {
            let count = reader.count(1, WHAT)?;
            let commits = (0..count).map(|_| read_commit(reader));
            Outcome::Committed(commits.collect::<Result<_, _>>()?)
        }
        10 => Outcome::Forgotten(reader.u32(WHAT)?),
        11 => Outcome::Trimmed {
            records: reader.u64(WHAT)?,
            more: read_flag(reader, WHAT)?,
        },
        12 => Outcome::Redacted(read_flag(reader, WHAT)?),
        13 => Outcome::NoRecord,
        other => return unknown(WHAT, other),
    })
}

fn read_commit(reader: &mut Reader<'_>) -> Result<Commit, DecodeError> {
    const WHAT: &str = "committed position";
    match reader.u8(WHAT)? {
        0 => Ok(Commit::At(Seq(reader.u64(WHAT)?))),
        1 => Ok(Commit::NoPartition),
        2 => Ok(Commit::Full),
        other => unknown(WHAT, other),
    }
}

fn read_terms(reader: &mut Reader<'_>) -> Result<Terms, DecodeError> {
    const WHAT: &str = "terms of a topic";
    Ok(Terms {
        created: Version(reader.u64(WHAT)?),
        changed: Version(reader.u64(WHAT)?),
        settings: Settings {
            partitions: reader.u32(WHAT)?,
            retention: Retention {
                max_age_ms: reader.u64(WHAT)?,
                max_bytes: reader.u64(WHAT)?,
            },
        },
    })
}

fn read_format(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    const WHAT: &str = "call between nodes";
    match reader.u8(WHAT)? {
        FORMAT => Ok(()),
        other => unknown(WHAT, other),
    }
}

fn read_flag(reader: &mut Reader<'_>, what: &'static str) -> Result<bool, DecodeError> {
    match reader.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        other => unknown(what, other),
    }
}

fn unknown<T>(what: &'static str, value: u8) -> Result<T, DecodeError> {
    Err(DecodeError::Unknown {
        what,
        value: u64::from(value),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn outcomes() -> Vec<Outcome> {
        let terms = Terms {
            created: Version(1),
            changed: Version(2),
            settings: Settings {
                partitions: 3,
                retention: Retention {
                    max_age_ms: 4,
                    max_bytes: 5,
                },
            },
        };
        vec![
            Outcome::Topic { new: true, terms },
            Outcome::NoTopic,
            Outcome::Adopted,
            Outcome::Deleted(6),
            Outcome::Appended(Appended {
                stream: StreamId(7),
                first: Seq(8),
                count: 9,
                timestamp_ns: 10,
                duplicate: true,
            }),
            Outcome::Refused(AppendRefusal::NoPartition { partitions: 11 }),
            Outcome::Refused(AppendRefusal::Stale),
            Outcome::Refused(AppendRefusal::ClaimsFull),
            Outcome::Committed(vec![Commit::At(Seq(12)), Commit::NoPartition, Commit::Full]),
            Outcome::Forgotten(13),
            Outcome::Trimmed {
                records: 14,
                more: false,
            },
            Outcome::Redacted(false),
            Outcome::NoRecord,
        ]
    }

    #[test]
    fn what_is_passed_on_comes_back_as_it_was() {
        for answer in [
            Ok(outcomes()),
            Ok(Vec::new()),
            Err(Failure::NotLeader),
            Err(Failure::Unconfirmed),
            Err(Failure::StorageFull),
            Err(Failure::Stopped),
            Err(Failure::Refused("why".to_owned())),
            Err(Failure::NotEnoughReplicas("why".to_owned())),
            Err(Failure::NotInSync),
        ] {
            assert_eq!(decode_answer(&encode_answer(&answer)).unwrap(), answer);
        }
        for kind in [Kind::Storing, Kind::Keeping] {
            let call = encode_call(GroupId(9), kind, b"commands");
            let read = decode_call(&call).unwrap();
            assert_eq!(
                (read.group, read.kind, read.commands),
                (GroupId(9), kind, &b"commands"[..])
            );
        }
    }

    #[test]
    fn what_is_cut_is_refused() {
        let whole = encode_answer(&Ok(outcomes()));
        let ends: Vec<usize> = (0..outcomes().len())
            .map(|count| encode_answer(&Ok(outcomes()[..count].to_vec())).len())
            .collect();
        for cut in (0..whole.len()).filter(|cut| !ends.contains(cut)) {
            assert!(decode_answer(&whole[..cut]).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_the_decoders_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_answer(&bytes);
            let _ = decode_call(&bytes);
        }
    }
}
