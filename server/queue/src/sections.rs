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
use bytes::{BufMut, BytesMut};

use crate::machine::Machine;
use crate::managing::snapshot as managing;
use crate::once;
use crate::ordering;
use crate::snapshot::check;
use crate::times;

/// One part: how it is told from others, and how it is written and read.
struct Section {
    tag: u8,
    is_empty: fn(&Machine) -> bool,
    write: fn(&Machine, &mut BytesMut),
    read: fn(&mut Machine, &mut Reader<'_>) -> Result<(), DecodeError>,
}

/// In the order of their tags.
const SECTIONS: &[Section] = &[
    Section {
        tag: 1,
        is_empty: managing::is_unmanaged,
        write: managing::write,
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
        write: once::write_section,
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

pub(crate) fn write(machine: &Machine, out: &mut BytesMut) {
    out.put_u8(u8::try_from(there(machine).count()).unwrap_or(u8::MAX));
    for section in there(machine) {
        out.put_u8(section.tag);
        // Its length is known afterwards. What is written elsewhere first would be there twice.
        let length_at = out.len();
        out.put_u32_le(0);
        (section.write)(machine, out);
        let length = u32::try_from(out.len() - length_at - 4).unwrap_or(u32::MAX);
        if let Some(field) = out.get_mut(length_at..length_at + 4) {
            field.copy_from_slice(&length.to_le_bytes());
        }
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
