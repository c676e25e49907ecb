//! The machine as bytes. The format is in the documentation of the crate.
//!
//! Written in one order only, so that equal machines are equal bytes; what is read is checked to be what a machine writes.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, Millis, Seq};
use bytes::{BufMut, BytesMut};

use crate::claims::Claims;
use crate::cursors::Cursors;
use crate::format::{check, put_short, read_number, read_topic};
use crate::machine::Machine;
use crate::outcome::Totals;
use crate::partition::{Block, Partition, Raised, Rest};
use crate::settings::{Settings, Terms, Version, read_version};
use crate::topics::{Partitions, Topics};

const FORMAT: u8 = 1;
/// What a partition has beside its open block.
const CLOSED: u8 = 1;
const REDACTED: u8 = 2;
const RAISED: u8 = 4;
const TOPICS_BYTES_MIN: usize = 26;
const PARTITION_BYTES_MIN: usize = 41;
const WHAT: &str = "snapshot of a stream group";

/// What the sections of a snapshot have to agree with.
#[derive(Debug, Default)]
struct Known {
    /// Of each stream, what its next record gets.
    next_seq: BTreeMap<u64, u64>,
    records: u64,
}

/// A part that a machine may have nothing of.
struct Section {
    tag: u8,
    is_empty: fn(&Machine) -> bool,
    write: fn(&Machine, &mut BytesMut),
    read: fn(&mut Machine, &mut Reader<'_>, &mut Known) -> Result<(), DecodeError>,
}

/// In the order of their tags.
const SECTIONS: &[Section] = &[
    Section {
        tag: 1,
        is_empty: |machine| machine.topics.len() == 0,
        write: |machine, out| write_topics(&machine.topics, out),
        read: |machine, reader, known| read_topics(&mut machine.topics, reader, known),
    },
    Section {
        tag: 2,
        is_empty: |machine| machine.cursors.is_empty(),
        write: |machine, out| machine.cursors.write(out),
        read: |machine, reader, known| {
            machine.cursors = Cursors::read(reader, machine.topics.last_stream, &known.next_seq)?;
            Ok(())
        },
    },
    Section {
        tag: 3,
        is_empty: |machine| machine.claims.len() == 0,
        write: |machine, out| machine.claims.write(out),
        read: |machine, reader, known| {
            machine.claims = Claims::read(reader, machine.topics.last_stream, &known.next_seq)?;
            Ok(())
        },
    },
];

pub(crate) fn write(machine: &Machine) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_u8(FORMAT);
    out.put_u64_le(machine.now.0);
    out.put_u64_le(machine.topics.last_version.0);
    out.put_u64_le(machine.topics.last_stream);
    let Totals {
        appended,
        trimmed,
        deleted,
        redacted,
        duplicates,
    } = machine.totals;
    for total in [appended, trimmed, deleted, redacted, duplicates] {
        out.put_u64_le(total);
    }
    let there = || SECTIONS.iter().filter(|section| !(section.is_empty)(machine));
    out.put_u8(u8::try_from(there().count()).unwrap_or(u8::MAX));
    for section in there() {
        out.put_u8(section.tag);
        let length_at = out.len();
        out.put_u64_le(0);
        (section.write)(machine, &mut out);
        let length = (out.len() - length_at - 8) as u64;
        if let Some(field) = out.get_mut(length_at..length_at + 8) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
    out
}

pub(crate) fn read(bytes: &[u8]) -> Result<Machine, DecodeError> {
    let mut reader = Reader::new(bytes);
    let format = reader.u8(WHAT)?;
    if format != FORMAT {
        return Err(DecodeError::Unknown {
            what: WHAT,
            value: u64::from(format),
        });
    }
    let mut machine = Machine {
        now: Millis(reader.u64("time")?),
        ..Machine::default()
    };
    machine.topics.last_version = read_version(&mut reader)?;
    machine.topics.last_stream = read_number(&mut reader, "streams")?;
    machine.totals = Totals {
        appended: read_number(&mut reader, "totals")?,
        trimmed: read_number(&mut reader, "totals")?,
        deleted: read_number(&mut reader, "totals")?,
        redacted: read_number(&mut reader, "totals")?,
        duplicates: read_number(&mut reader, "totals")?,
    };
    let known = read_sections(&mut machine, &mut reader)?;
    reader.end(WHAT)?;
    let Totals {
        appended,
        trimmed,
        deleted,
        ..
    } = machine.totals;
    let adds_up = appended == known.records + trimmed + deleted;
    check(adds_up, "totals", "they do not add up to the records that there are")?;
    Ok(machine)
}

fn read_sections(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<Known, DecodeError> {
    let mut known = Known::default();
    let mut last = 0;
    for _ in 0..reader.u8("sections")? {
        let tag = reader.u8("section tag")?;
        check(tag > last, "sections", "their tags do not rise")?;
        last = tag;
        let Some(section) = SECTIONS.iter().find(|section| section.tag == tag) else {
            return Err(DecodeError::Unknown {
                what: "section tag",
                value: u64::from(tag),
            });
        };
        let bytes = usize::try_from(reader.u64("section length")?).unwrap_or(usize::MAX);
        let mut content = Reader::new(reader.take(bytes, "section")?);
        (section.read)(machine, &mut content, &mut known)?;
        content.end("section")?;
        check(!(section.is_empty)(machine), "section", "there is nothing in it")?;
    }
    Ok(known)
}

fn write_topics(topics: &Topics, out: &mut BytesMut) {
    // Most of a topic is its name.
    out.reserve(topics.len() * (TOPICS_BYTES_MIN + PARTITION_BYTES_MIN + 32));
    let settings: BTreeMap<&Settings, u32> = topics.settings.iter().zip(0..).collect();
    codec::put_len(out, settings.len());
    settings.keys().for_each(|settings| settings.write(out));
    codec::put_len(out, topics.len());
    for (name, topic) in topics.after(None) {
        put_short(out, name);
        out.put_u64_le(topic.created.0);
        out.put_u64_le(topic.changed.0);
        out.put_u32_le(settings.get(&*topic.settings).copied().unwrap_or(u32::MAX));
        codec::put_len(out, topic.partitions.iter().count());
        topic
            .partitions
            .iter()
            .for_each(|partition| write_partition(partition, out));
    }
}

fn read_topics(topics: &mut Topics, reader: &mut Reader<'_>, known: &mut Known) -> Result<(), DecodeError> {
    let mut settings: Vec<Settings> = Vec::new();
    for _ in 0..reader.count(Settings::BYTES, "settings")? {
        let next = Settings::read(reader)?;
        check(
            settings.last().is_none_or(|last| *last < next),
            "settings",
            "they are not in order",
        )?;
        settings.push(next);
    }
    let mut name_before = "";
    for _ in 0..reader.count(TOPICS_BYTES_MIN + PARTITION_BYTES_MIN, "topics")? {
        let name = read_topic(reader)?;
        check(name_before < name, "topics", "they are not in order")?;
        name_before = name;
        let (created, changed) = (read_version(reader)?, read_version(reader)?);
        let in_order = Version::NONE < created && created <= changed;
        check(in_order, "topic", "it was changed before it was created")?;
        let Some(settings) = settings.get(reader.u32("settings of a topic")? as usize) else {
            return Err(DecodeError::Invalid {
                what: "topic",
                why: "it has settings that are not there",
            });
        };
        let terms = Terms {
            created,
            changed,
            settings: *settings,
        };
        let partitions = read_partitions(reader, &terms, topics.last_stream, known)?;
        topics.insert(name, &terms, partitions);
    }
    check(
        topics.settings.len() == settings.len(),
        "settings",
        "no topic has some of them",
    )
}

fn read_partitions(
    reader: &mut Reader<'_>,
    terms: &Terms,
    last_stream: u64,
    known: &mut Known,
) -> Result<Partitions, DecodeError> {
    const WHAT: &str = "partitions";
    let mut partitions: Option<Partitions> = None;
    let mut least = 0;
    for _ in 0..reader.count(PARTITION_BYTES_MIN, WHAT)? {
        let partition = read_partition(reader)?;
        let in_order = (least..terms.settings.partitions).contains(&partition.number);
        check(in_order, WHAT, "they are not in order, or more than the topic has")?;
        least = partition.number + 1;
        let stream = partition.stream().0;
        let new = known.next_seq.insert(stream, partition.next_seq()).is_none();
        check(
            new && stream <= last_stream,
            WHAT,
            "a stream is there twice, or was never given",
        )?;
        known.records = known.records.saturating_add(partition.record_count());
        match &mut partitions {
            Some(partitions) => partitions.insert(partition),
            None => partitions = Some(Partitions::One(partition)),
        }
    }
    partitions.ok_or(DecodeError::Invalid {
        what: WHAT,
        why: "there are none",
    })
}

fn write_partition(partition: &Partition, out: &mut BytesMut) {
    out.put_u32_le(partition.number);
    out.put_u64_le(partition.stream().0);
    out.put_u64_le(partition.first);
    out.put_u64_le(partition.last_ns);
    for part in [partition.count, partition.bytes, partition.span_ms] {
        out.put_u32_le(part);
    }
    let nothing = Rest::default();
    let rest = partition.rest.as_deref().unwrap_or(&nothing);
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    out.put_u8(
        flag(!rest.closed.is_empty(), CLOSED)
            | flag(!rest.redacted.is_empty(), REDACTED)
            | flag(!rest.raised.is_empty(), RAISED),
    );
    if !rest.closed.is_empty() {
        codec::put_len(out, rest.closed.len());
        for block in &rest.closed {
            out.put_u64_le(block.first);
            out.put_u64_le(block.last_ns);
            out.put_u32_le(block.bytes);
        }
    }
    if !rest.redacted.is_empty() {
        codec::put_len(out, rest.redacted.len());
        for range in rest.redacted.iter() {
            out.put_u64_le(range.start);
            out.put_u64_le(range.end);
        }
    }
    if !rest.raised.is_empty() {
        codec::put_len(out, rest.raised.len());
        for raised in &rest.raised {
            for part in [raised.first, raised.end, raised.ns] {
                out.put_u64_le(part);
            }
        }
    }
}

fn read_partition(reader: &mut Reader<'_>) -> Result<Partition, DecodeError> {
    const WHAT: &str = "partition";
    let number = reader.u32(WHAT)?;
    let Some(stream) = NonZeroU64::new(read_number(reader, WHAT)?) else {
        return Err(DecodeError::Invalid {
            what: WHAT,
            why: "it has no stream",
        });
    };
    let mut partition = Partition::new(number, stream);
    partition.first = read_number(reader, WHAT)?;
    partition.last_ns = reader.u64(WHAT)?;
    partition.count = reader.u32(WHAT)?;
    partition.bytes = reader.u32(WHAT)?;
    partition.span_ms = reader.u32(WHAT)?;
    let nothing = partition.bytes == 0 && partition.span_ms == 0;
    check(
        partition.first >= Seq::FIRST.0 && (partition.count > 0) != nothing,
        WHAT,
        "its open block contradicts itself",
    )?;
    let flags = reader.u8(WHAT)?;
    if flags > CLOSED | REDACTED | RAISED {
        return Err(DecodeError::Unknown {
            what: "parts of a partition",
            value: u64::from(flags),
        });
    }
    if flags > 0 {
        partition.rest = Some(read_rest(reader, &partition, flags)?);
    }
    Ok(partition)
}

fn read_rest(reader: &mut Reader<'_>, partition: &Partition, flags: u8) -> Result<Box<Rest>, DecodeError> {
    let mut rest = Box::<Rest>::default();
    if flags & CLOSED != 0 {
        read_closed(reader, partition, &mut rest)?;
    }
    let first = rest.closed.front().map_or(partition.first, |block| block.first);
    let there = first..partition.next_seq();
    if flags & REDACTED != 0 {
        const WHAT: &str = "redacted records";
        for _ in 0..count_some(reader, 16, WHAT)? {
            let range = reader.u64(WHAT)?..reader.u64(WHAT)?;
            let fits = there.start <= range.start && range.end <= there.end;
            check(
                fits && rest.redacted.push(range),
                WHAT,
                "they are not there, or not in order",
            )?;
        }
    }
    if flags & RAISED != 0 {
        const WHAT: &str = "raised timestamps";
        let (mut least, mut ns_before) = (there.start, 0);
        for _ in 0..count_some(reader, 24, WHAT)? {
            let raised = Raised {
                first: reader.u64(WHAT)?,
                end: reader.u64(WHAT)?,
                ns: reader.u64(WHAT)?,
            };
            let in_order = least <= raised.first && raised.first < raised.end && raised.end <= there.end;
            let rises = ns_before <= raised.ns && raised.ns <= partition.last_ns;
            check(in_order && rises, WHAT, "they are not there, or not in order")?;
            (least, ns_before) = (raised.end, raised.ns);
            rest.raised.push_back(raised);
        }
    }
    Ok(rest)
}

fn read_closed(reader: &mut Reader<'_>, partition: &Partition, rest: &mut Rest) -> Result<(), DecodeError> {
    const WHAT: &str = "blocks of a partition";
    let mut before: Option<Block> = None;
    for _ in 0..count_some(reader, 20, WHAT)? {
        let block = Block {
            first: reader.u64(WHAT)?,
            last_ns: reader.u64(WHAT)?,
            bytes: reader.u32(WHAT)?,
        };
        let in_order = before.is_none_or(|before| before.first < block.first && before.last_ns <= block.last_ns);
        let within = (Seq::FIRST.0..partition.first).contains(&block.first) && block.last_ns <= partition.last_ns;
        check(in_order && within, WHAT, "they are not in order")?;
        before = Some(block);
        rest.closed_bytes += u64::from(block.bytes);
        rest.closed.push_back(block);
    }
    Ok(())
}

/// A count of at least 1.
fn count_some(reader: &mut Reader<'_>, item_bytes: usize, what: &'static str) -> Result<usize, DecodeError> {
    let count = reader.count(item_bytes, what)?;
    check(count > 0, what, "there are none")?;
    Ok(count)
}
