//! Segments: any bytes in the place of one that a checkpoint points into.

#![no_main]

use boltq_fuzz::pair::Fuzzed;

boltq_fuzz::fuzz_one_of!(Fuzzed::Segment);
