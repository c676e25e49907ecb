//! Parts of a snapshot that most machines have nothing of: each with a tag and its length.
//!
//! ```text
//! u8 number of sections, at least 1; each: u8 tag, rising; u32 length; content
//! ```
//!
//! A part that is empty is left out, so that equal machines are equal bytes, and a machine without any is written as it
//! was before there were sections.

use boltq_core::DecodeError;
use boltq_core::codec::Reader;
use bytes::BufMut;

use crate::machine::Machine;
use crate::managing::snapshot as managing;
use crate::once;
use crate::ordering;
use crate::snapshot::{Parts, check};
use crate::times;

/// One part: how it is told from others, and how it is written and read.
struct Section {
    tag: u8,
    is_empty: fn(&Machine) -> bool,
    write: fn(&Machine, &mut Parts),
    read: fn(&mut Machine, &mut Reader<'_>) -> Result<(), DecodeError>,
}

/// In the order of their tags.
const SECTIONS: &[Section] = &[
    Section {
        tag: 1,
        is_empty: managing::is_unmanaged,
        write: |machine, parts| managing::write(machine, parts.bytes()),
        read: managing::read,
    },
    Section {
        tag: 2,
        is_empty: times::are_empty,
        write: times::write,
        read: times::read,
    },
    Section {
        tag: 3,
        is_empty: ordering::is_empty,
        write: ordering::write_section,
        read: ordering::read_section,
    },
    Section {
        tag: 4,
        is_empty: once::is_empty,
        write: |machine, parts| once::write_section(machine, parts.bytes()),
        read: once::read_section,
    },
];

fn there(machine: &Machine) -> impl Iterator<Item = &'static Section> {
    SECTIONS.iter().filter(|section| !(section.is_empty)(machine))
}

/// Whether there is nothing to write.
pub(crate) fn are_empty(machine: &Machine) -> bool {
    there(machine).next().is_none()
}

pub(crate) fn write(machine: &Machine, parts: &mut Parts) {
    let count = u8::try_from(there(machine).count()).unwrap_or(u8::MAX);
    parts.bytes().put_u8(count);
    for section in there(machine) {
        parts.bytes().put_u8(section.tag);
        parts.sized(|parts| (section.write)(machine, parts));
    }
}

pub(crate) fn read(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
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
        let bytes = reader.u32("section length")? as usize;
        let mut content = Reader::new(reader.take(bytes, "section")?);
        (section.read)(machine, &mut content)?;
        check(content.is_empty(), "section", "there are bytes behind its end")?;
        check(!(section.is_empty)(machine), "section", "there is nothing in it")?;
    }
    Ok(())
}
