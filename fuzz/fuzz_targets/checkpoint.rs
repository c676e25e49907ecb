//! Checkpoints: any bytes in the place of one, beside the segment that the recorded one points into.

#![no_main]

use boltq_fuzz::pair::Fuzzed;

boltq_fuzz::fuzz_one_of!(Fuzzed::Checkpoint);
