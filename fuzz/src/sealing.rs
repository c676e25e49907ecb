//! Mutated files of the log, made whole again.
//!
//! Every frame has a checksum, its own place and its length in its header, and padding behind it (`server/log/src/frame.rs`).
//! A mutation breaks at least one of these, and all that a fuzzer would learn is that damage is refused. So most mutations
//! are followed by [`seal`], and what comes behind the checksum is fuzzed too. It happens in the mutator and not in the
//! target: an input is then exactly what lies in the file.

const MAGIC: &[u8] = b"BqF";
const HEADER_BYTES: usize = 40;
const ALIGNMENT: usize = 8;
const LENGTH_AT: usize = 8;
const CRC_AT: usize = 12;
const FILE_AT: usize = 16;
const OFFSET_AT: usize = 36;

/// One in this many mutations is left as it is: refusing damage is a part of the log too.
const UNSEALED_ONE_IN: u32 = 8;

/// The body of a mutator of files: mutates, and seals with `seal`.
pub fn mutate(data: &mut [u8], size: usize, max_size: usize, seed: u32, seal: impl Fn(&[u8]) -> Vec<u8>) -> usize {
    let size = libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    if seed.is_multiple_of(UNSEALED_ONE_IN) {
        return size;
    }
    let sealed = seal(&data[..size]);
    let size = sealed.len().min(max_size);
    data[..size].copy_from_slice(&sealed[..size]);
    size
}

/// The bytes with all that starts like a frame turned into a whole frame of `file`: aligned, no longer than what there is
/// up to the next one, with its place and its checksum. The rest of the header and the payload stay as they are.
pub fn seal(bytes: &[u8], file: u64) -> Vec<u8> {
    let starts: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(MAGIC)).collect();
    let ends = starts.iter().skip(1).copied().chain([bytes.len()]);
    let mut out = bytes[..starts.first().copied().unwrap_or(bytes.len())].to_vec();
    for (start, end) in starts.iter().copied().zip(ends) {
        let Some((header, rest)) = bytes[start..end].split_first_chunk() else {
            out.extend_from_slice(&bytes[start..end]);
            continue;
        };
        align(&mut out);
        let used = put_frame(&mut out, *header, rest, file);
        if end == bytes.len() {
            out.extend_from_slice(rest.get(used..).unwrap_or_default());
        }
    }
    out
}

/// Returns how much of `rest` is in the frame.
fn put_frame(out: &mut Vec<u8>, mut header: [u8; HEADER_BYTES], rest: &[u8], file: u64) -> usize {
    let declared = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
    let length = rest.len().min(declared as usize);
    let offset = out.len();
    header[LENGTH_AT..CRC_AT].copy_from_slice(&(length as u32).to_le_bytes());
    header[FILE_AT..FILE_AT + 8].copy_from_slice(&file.to_le_bytes());
    header[OFFSET_AT..].copy_from_slice(&(offset as u32).to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&rest[..length]);
    hasher.update(&header[..CRC_AT]);
    hasher.update(&header[FILE_AT..]);
    header[CRC_AT..FILE_AT].copy_from_slice(&hasher.finalize().to_le_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(&rest[..length]);
    align(out);
    out.len() - offset - HEADER_BYTES
}

fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
}
