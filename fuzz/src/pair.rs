//! A checkpoint and the segment that it points into, of which one is the input.
//!
//! Both targets are the same but for which of the two files is recorded, so each is an invocation of [`fuzz_one_of`].

use crate::directory::{CHECKPOINT, CHECKPOINT_ID, SEGMENT, SEGMENT_ID, WALS, exercise};
use crate::sealing;

const RECORDED_CHECKPOINT: &[u8] = include_bytes!("../../tests/vectors/log/v1/ckp-1-0000000000000006");
const RECORDED_SEGMENT: &[u8] = include_bytes!("../../tests/vectors/log/v1/seg-0000000000000004.log");

/// Which of the two is the input.
#[derive(Debug, Clone, Copy)]
pub enum Fuzzed {
    /// The checkpoint, beside the recorded segment.
    Checkpoint,
    /// The segment, beside the recorded checkpoint.
    Segment,
}

impl Fuzzed {
    /// Whether a directory with the input in it is opened.
    pub fn accepted(self, input: &[u8]) -> bool {
        let (checkpoint, segment) = match self {
            Self::Checkpoint => (input, RECORDED_SEGMENT),
            Self::Segment => (RECORDED_CHECKPOINT, input),
        };
        exercise(&[(CHECKPOINT, checkpoint), (SEGMENT, segment), (WALS[1], &[])])
    }

    /// See [`sealing::seal`].
    pub fn seal(self, input: &[u8]) -> Vec<u8> {
        let file = match self {
            Self::Checkpoint => CHECKPOINT_ID,
            Self::Segment => SEGMENT_ID,
        };
        sealing::seal(input, file)
    }

    /// Otherwise nothing would be tested but refusal.
    pub fn check_seed(self) {
        let recorded = match self {
            Self::Checkpoint => RECORDED_CHECKPOINT,
            Self::Segment => RECORDED_SEGMENT,
        };
        assert!(self.accepted(recorded));
        assert!(self.seal(recorded) == recorded, "sealing changed frames that are whole");
    }
}

/// The target that fuzzes one of the two.
#[macro_export]
macro_rules! fuzz_one_of {
    ($fuzzed:expr) => {
        ::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::sealing::mutate(data, size, max_size, seed, |input| $fuzzed.seal(input))
        });

        ::libfuzzer_sys::fuzz_target!(
            init: $fuzzed.check_seed(),
            |data: &[u8]| -> () {
                $fuzzed.accepted(data);
            }
        );
    };
}
