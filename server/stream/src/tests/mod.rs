//! Tests of the rules, by hand and against a simple model.

mod appends;
mod compare;
mod fixture;
mod keeping;
mod model;
mod positions;
mod random;
mod snapshots;
mod topics;
