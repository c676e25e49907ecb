//! What is proposed: commands as they lie in an entry, and the writers that put them there. The format is in the documentation of
//! the crate.

use std::num::NonZeroU32;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, RecordHead};
use bytes::{BufMut, BytesMut};

use crate::claims::ClaimKey;
use crate::format::{self, put_short, read_short, read_topic};
use crate::settings::{Retention, Settings, Terms, Version, read_retention};

const CREATE: u8 = 1;
const UPDATE: u8 = 2;
const ADOPT: u8 = 3;
const DELETE: u8 = 4;
const APPEND: u8 = 5;
const COMMIT: u8 = 6;
const FORGET: u8 = 7;
const TRIM: u8 = 8;
const REDACT: u8 = 9;

/// The topic that a command is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'a> {
    /// Its name.
    pub topic: &'a str,
    /// Which topic of that name. [`Version::NONE`]: the one that is there.
    pub created: Version,
}

impl<'a> Target<'a> {
    fn write(self, out: &mut BytesMut) {
        put_short(out, self.topic);
        out.put_u64_le(self.created.0);
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            topic: read_topic(reader)?,
            created: Version(reader.u64("creation of a topic")?),
        })
    }
}

/// A reader of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CursorOf<'a> {
    /// What it reads.
    pub target: Target<'a>,
    /// What it reads of it.
    pub partition: u32,
    /// Its group, up to [`crate::CURSOR_NAME_BYTES_MAX`] bytes.
    pub group: &'a str,
    /// Its name in the group, up to [`crate::CURSOR_NAME_BYTES_MAX`] bytes; may be empty.
    pub member: &'a str,
}

impl<'a> CursorOf<'a> {
    /// With the shortest names.
    const BYTES_MIN: usize = 16;

    fn write(&self, out: &mut BytesMut) {
        self.target.write(out);
        out.put_u32_le(self.partition);
        put_short(out, self.group);
        put_short(out, self.member);
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            target: Target::read(reader)?,
            partition: reader.u32("partition")?,
            group: read_short(reader, "group of readers")?,
            member: read_short(reader, "member of a group")?,
        })
    }
}

/// The key of an append that may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The key.
    pub key: ClaimKey,
    /// For how many milliseconds it is remembered. Rounded up to a second.
    pub ttl_ms: u64,
    /// So many keys remembered in the group are too many for one more.
    pub claims_max: u32,
}

/// Appends the command that creates a topic in its home, unless there is one of the name.
pub fn create(out: &mut BytesMut, topic: &str, settings: &Settings) {
    out.put_u8(CREATE);
    put_short(out, topic);
    settings.write(out);
}

/// Appends the command that changes how long the records of a topic are kept, in its home.
pub fn update(out: &mut BytesMut, target: Target<'_>, retention: Retention) {
    out.put_u8(UPDATE);
    target.write(out);
    out.put_u64_le(retention.max_age_ms);
    out.put_u64_le(retention.max_bytes);
}

/// Appends the command that brings a topic in line with what it is in its home, in another group. If it has nothing there, it stays
/// so; what it has there of an earlier topic of the name goes.
pub fn adopt(out: &mut BytesMut, topic: &str, terms: &Terms) {
    out.put_u8(ADOPT);
    put_short(out, topic);
    terms.write(out);
}

/// Appends the command that deletes what a topic has in a group, unless that is of a later topic of the name.
pub fn delete(out: &mut BytesMut, target: Target<'_>) {
    out.put_u8(DELETE);
    target.write(out);
}

/// Appends the command that removes records that retention does not keep, a bounded number from each topic. Which these are is decided
/// when it is applied.
pub fn trim<'a>(out: &mut BytesMut, topics: impl ExactSizeIterator<Item = &'a str>) {
    out.put_u8(TRIM);
    codec::put_len(out, topics.len());
    topics.for_each(|topic| put_short(out, topic));
}

/// Appends the command that takes the content of a record away for ever. Its place stays.
pub fn redact(out: &mut BytesMut, target: Target<'_>, partition: u32, seq: u64) {
    out.put_u8(REDACT);
    target.write(out);
    out.put_u32_le(partition);
    out.put_u64_le(seq);
}

/// Writes an append: `begin`, then the records with [`boltq_core::RecordBuilder`] into the same buffer, then `finish`.
#[derive(Debug)]
#[must_use = "an append without `finish` has no records"]
pub struct AppendWriter {
    count_at: usize,
}

impl AppendWriter {
    /// Starts an append to a partition, which is created with its topic when they do not exist.
    pub fn begin(out: &mut BytesMut, topic: &str, partition: u32, terms: &Terms, claim: Option<ClaimRequest>) -> Self {
        out.put_u8(APPEND);
        put_short(out, topic);
        out.put_u32_le(partition);
        terms.write(out);
        out.put_u8(u8::from(claim.is_some()));
        if let Some(claim) = claim {
            out.put_u128_le(claim.key.0);
            out.put_u64_le(claim.ttl_ms);
            out.put_u32_le(claim.claims_max);
        }
        let count_at = out.len();
        out.put_u32_le(0);
        Self { count_at }
    }

    /// Says how many records were appended.
    pub fn finish(self, out: &mut BytesMut, count: NonZeroU32) {
        patch_u32(out, self.count_at, count.get());
    }
}

/// Writes positions that readers have got to.
#[derive(Debug)]
#[must_use = "positions without `finish` are none"]
pub struct CommitWriter {
    count_at: usize,
    count: u32,
}

impl CommitWriter {
    /// Starts a list. So many positions of the group are too many for a new one; others move all the same.
    pub fn begin(out: &mut BytesMut, cursors_max: u32) -> Self {
        out.put_u8(COMMIT);
        out.put_u32_le(cursors_max);
        let count_at = out.len();
        out.put_u32_le(0);
        Self { count_at, count: 0 }
    }

    /// Adds the sequence that a reader wants next.
    pub fn push(&mut self, out: &mut BytesMut, cursor: &CursorOf<'_>, next_wanted: u64) {
        cursor.write(out);
        out.put_u64_le(next_wanted);
        self.count += 1;
    }

    /// Ends the list.
    pub fn finish(self, out: &mut BytesMut) {
        patch_u32(out, self.count_at, self.count);
    }
}

/// Appends the command that forgets positions.
pub fn forget<'a>(out: &mut BytesMut, cursors: impl ExactSizeIterator<Item = CursorOf<'a>>) {
    out.put_u8(FORGET);
    codec::put_len(out, cursors.len());
    cursors.for_each(|cursor| cursor.write(out));
}

/// What a command that readers have to know of is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The topic.
    pub topic: &'a str,
    /// None: all of its partitions.
    pub partition: Option<u32>,
}

/// Whose readers have to look again after a command: those of the partition that it appended to, or of the topic that it
/// created, changed or deleted. Reads no more of it than it has to; a command that cannot be read has none.
#[must_use]
pub fn subject(command: &[u8]) -> Option<Subject<'_>> {
    let mut reader = Reader::new(command);
    let kind = reader.u8("command").ok()?;
    if ![CREATE, UPDATE, ADOPT, DELETE, APPEND].contains(&kind) {
        return None;
    }
    let topic = read_topic(&mut reader).ok()?;
    let partition = match kind {
        APPEND => Some(reader.u32("partition").ok()?),
        _ => None,
    };
    Some(Subject { topic, partition })
}

/// Whether a command can be applied. One that cannot ends the group on every node, so a leader that proposes what others wrote
/// looks first.
///
/// # Errors
/// What is wrong with it.
pub fn check(command: &[u8]) -> Result<(), DecodeError> {
    match Command::read(command)? {
        Command::Append(append) => read_heads(&append, |_| ()),
        _ => Ok(()),
    }
}

/// Reads the heads of the records of an append.
pub(crate) fn read_heads(append: &Append<'_>, mut each: impl FnMut(RecordHead)) -> Result<(), DecodeError> {
    const WHAT: &str = "records";
    let mut at = 0;
    for _ in 0..append.count {
        let head = RecordHead::read(append.records.get(at..).unwrap_or_default())?;
        at += head.bytes;
        each(head);
    }
    format::check(at > 0, WHAT, "there are none")?;
    format::check(
        at == append.records.len(),
        WHAT,
        "there are more bytes than their count accounts for",
    )
}

fn patch_u32(out: &mut BytesMut, at: usize, value: u32) {
    if let Some(field) = out.get_mut(at..at + 4) {
        field.copy_from_slice(&value.to_le_bytes());
    }
}

/// An append as it is read. The records are not looked at yet.
#[derive(Debug)]
pub(crate) struct Append<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: u32,
    pub(crate) terms: Terms,
    pub(crate) claim: Option<ClaimRequest>,
    pub(crate) count: u32,
    pub(crate) records: &'a [u8],
    /// Where they are in the command.
    pub(crate) records_at: usize,
}

impl<'a> Append<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Ok(Self {
            topic: read_topic(reader)?,
            partition: reader.u32("partition")?,
            terms: Terms::read(reader)?,
            claim: read_claim(reader)?,
            count: reader.u32("record count")?,
            records_at: reader.position(),
            records: reader.rest(),
        })
    }
}

/// A command as it is read: its parts are slices of the entry.
#[derive(Debug)]
pub(crate) enum Command<'a> {
    Create {
        topic: &'a str,
        settings: Settings,
    },
    Update {
        target: Target<'a>,
        retention: Retention,
    },
    Adopt {
        topic: &'a str,
        terms: Terms,
    },
    Delete(Target<'a>),
    Append(Append<'a>),
    Commit {
        cursors_max: u32,
        commits: Vec<(CursorOf<'a>, u64)>,
    },
    Forget(Vec<CursorOf<'a>>),
    Trim(Vec<&'a str>),
    Redact {
        target: Target<'a>,
        partition: u32,
        seq: u64,
    },
}

impl<'a> Command<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        const WHAT: &str = "command of a stream group";
        let mut reader = Reader::new(bytes);
        let command = match reader.u8(WHAT)? {
            CREATE => Self::Create {
                topic: read_topic(&mut reader)?,
                settings: Settings::read(&mut reader)?,
            },
            UPDATE => Self::Update {
                target: Target::read(&mut reader)?,
                retention: read_retention(&mut reader)?,
            },
            ADOPT => Self::Adopt {
                topic: read_topic(&mut reader)?,
                terms: Terms::read(&mut reader)?,
            },
            DELETE => Self::Delete(Target::read(&mut reader)?),
            APPEND => Self::Append(Append::read(&mut reader)?),
            COMMIT => Self::Commit {
                cursors_max: reader.u32("positions at most")?,
                commits: read_list(&mut reader, CursorOf::BYTES_MIN + 8, "positions", |reader| {
                    Ok((CursorOf::read(reader)?, reader.u64("position")?))
                })?,
            },
            FORGET => Self::Forget(read_list(
                &mut reader,
                CursorOf::BYTES_MIN,
                "forgotten positions",
                CursorOf::read,
            )?),
            TRIM => Self::Trim(read_list(&mut reader, 2, "topics", read_topic)?),
            REDACT => Self::Redact {
                target: Target::read(&mut reader)?,
                partition: reader.u32("partition")?,
                seq: reader.u64("sequence")?,
            },
            other => {
                return Err(DecodeError::Unknown {
                    what: WHAT,
                    value: u64::from(other),
                });
            }
        };
        reader.end(WHAT)?;
        Ok(command)
    }
}

fn read_list<'a, T>(
    reader: &mut Reader<'a>,
    item_bytes_min: usize,
    what: &'static str,
    mut read: impl FnMut(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = reader.count(item_bytes_min, what)?;
    (0..count).map(|_| read(reader)).collect()
}

fn read_claim(reader: &mut Reader<'_>) -> Result<Option<ClaimRequest>, DecodeError> {
    match reader.u8("key of an append")? {
        0 => Ok(None),
        1 => Ok(Some(ClaimRequest {
            key: ClaimKey(reader.u128("key of an append")?),
            ttl_ms: reader.u64("life of a key")?,
            claims_max: reader.u32("keys at most")?,
        })),
        other => Err(DecodeError::Unknown {
            what: "key of an append",
            value: u64::from(other),
        }),
    }
}
