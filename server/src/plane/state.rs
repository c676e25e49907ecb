//! The state of the plane as bytes.
//!
//! ```text
//! u8  format, 2
//! u64 length of the state of the queues, which follows
//! state of the cache: the rest
//! ```
//!
//! Integers are little-endian. A state of format 1 is that of the queues alone, which begins with its own format, 1; it is
//! read as well, with an empty cache.

use boltq_core::codec::Reader;
use boltq_core::{DecodeError, StateMachine};
use boltq_kv::Cache;
use boltq_queue::Machine;
use bytes::{BufMut, BytesMut};

const FORMAT: u8 = 2;
/// Format and length.
const HEAD_BYTES: usize = 9;

pub(super) fn write(queues: &boltq_queue::Captured, cache: boltq_kv::Captured) -> Vec<u8> {
    let mut state = BytesMut::new();
    state.put_u8(FORMAT);
    state.put_u64_le(0);
    queues.write(&mut state);
    let length = (state.len() - HEAD_BYTES) as u64;
    state[1..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
    cache.write(&mut state);
    state.into()
}

pub(super) fn read(state: &[u8]) -> Result<(Machine, Cache), DecodeError> {
    let mut reader = Reader::new(state);
    if reader.u8("state")? != FORMAT {
        return Ok((Machine::restore(state)?, Cache::default()));
    }
    let bytes = usize::try_from(reader.u64("length of the queues")?).unwrap_or(usize::MAX);
    let queues = Machine::restore(reader.take(bytes, "queues")?)?;
    Ok((queues, Cache::restore(reader.rest())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded by the version before there was a cache.
    const FORMAT_1: &str = include_str!("../../../tests/vectors/queue/snapshot-v1.txt");
    const FORMAT_2: &str = include_str!("../../../tests/vectors/plane/state-v2.txt");

    fn unhex(text: &str) -> Vec<u8> {
        let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        text.trim().as_bytes().chunks(2).map(digits).collect()
    }

    #[test]
    fn a_state_without_a_cache_is_read_with_an_empty_one() {
        let state = unhex(FORMAT_1);
        assert_eq!(state[0], 1);
        let (queues, cache) = read(&state).unwrap();
        assert_eq!(queues.snapshot(), as_written_now(&state));
        assert_eq!(cache.snapshot(), Cache::default().snapshot());
    }

    /// Queues that were recorded before due times had their present place.
    fn as_written_now(queues: &[u8]) -> Vec<u8> {
        Machine::restore(queues).unwrap().snapshot()
    }

    #[test]
    fn recorded_bytes_are_read_and_what_is_written_is_read_again() {
        let state = unhex(FORMAT_2);
        let (queues, cache) = read(&state).unwrap();
        assert_eq!(queues.snapshot(), as_written_now(&unhex(FORMAT_1)));
        assert_eq!(cache.len(boltq_core::Millis(0)), 2);
        let written = write(&queues.capture(), cache.capture());
        assert!(written.ends_with(&cache.snapshot()) && state.ends_with(&cache.snapshot()));
        let (again, cache_again) = read(&written).unwrap();
        assert_eq!(
            (again.snapshot(), cache_again.snapshot()),
            (queues.snapshot(), cache.snapshot())
        );
    }

    #[test]
    fn a_state_that_is_cut_off_is_refused() {
        let state = unhex(FORMAT_2);
        for end in 0..state.len() {
            assert!(read(&state[..end]).is_err(), "{end} bytes of {}", state.len());
        }
        let mut longer = state;
        longer.push(0);
        assert!(read(&longer).is_err());
    }
}
