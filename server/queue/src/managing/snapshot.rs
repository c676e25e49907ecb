//! What queues have of their own, in a snapshot.
//!
//! ```text
//! u64 dropped, u64 rejected (see `Totals`)
//! u32 number of deleted queues
//! u32 number of queues with settings; each, in the order of their numbers:
//!     u32 queue, settings (see `options.rs`)
//!     if max_length_bytes is one of them: u32 number of streams that are counted; each, in their order:
//!         u32 stream, u32 number of marks; each: u64 sequence, u64 bytes (see `sizes.rs`)
//! ```

use boltq_core::DecodeError;
use boltq_core::codec::{self, Reader};
use bytes::{BufMut, BytesMut};

use crate::machine::Machine;
use crate::options::QueueOptions;
use crate::sizes::Sizes;
use crate::snapshot::{check, read_total};

pub(crate) fn is_unmanaged(machine: &Machine) -> bool {
    let totals = machine.totals;
    totals.dropped == 0
        && totals.rejected == 0
        && machine.queues.gone_count() == 0
        && machine.queues.iter().all(|queue| queue.options.is_none())
}

pub(crate) fn write(machine: &Machine, out: &mut BytesMut) {
    out.put_u64_le(machine.totals.dropped);
    out.put_u64_le(machine.totals.rejected);
    codec::put_len(out, machine.queues.gone_count());
    let own = || {
        let queues = machine.queues.numbered();
        queues.filter_map(|(number, queue)| Some((number, queue, queue.options.as_deref()?)))
    };
    codec::put_len(out, own().count());
    for (number, queue, options) in own() {
        codec::put_len(out, number);
        options.put(out);
        if let Some(sizes) = &queue.sizes {
            sizes.put(out);
        }
    }
}

pub(crate) fn read(machine: &mut Machine, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    const WHAT: &str = "settings of queues";
    machine.totals.dropped = read_total(reader)?;
    machine.totals.rejected = read_total(reader)?;
    let gone = reader.u32("deleted queues")? as usize;
    check(
        gone == machine.queues.gone_count(),
        "deleted queues",
        "there are not as many as there should be",
    )?;
    let mut before = None;
    for _ in 0..reader.count(6, WHAT)? {
        let number = reader.u32(WHAT)?;
        check(before < Some(number), WHAT, "they are not in order")?;
        before = Some(number);
        let options = QueueOptions::read(reader)?;
        check(options != QueueOptions::default(), WHAT, "a queue has none")?;
        let Some(queue) = machine.queues.get_mut(number as usize) else {
            return check(false, WHAT, "they are of a queue that does not exist");
        };
        queue.set_options(options);
        if queue.sizes.is_some() {
            let sizes = Sizes::read(reader, |lane| queue.window(lane))?;
            queue.sizes = Some(Box::new(sizes));
        }
    }
    Ok(())
}
