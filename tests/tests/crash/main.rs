//! What survives the death of the process, and what the server does about damage and full disks.
//!
//! A killed process leaves its page cache behind, so these tests say nothing about lost power: that a sync happens before
//! an answer is the business of the log's own tests, which put a failing disk under it.

mod damage;
mod disk_full;
mod disk_space;
mod gone;
mod kill;
mod many_queues;
mod second_start;
mod states;
