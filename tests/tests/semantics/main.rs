//! What happens to a message between publish and acknowledgement, whatever door it came through.

mod dead_letters;
mod delay;
mod expiry;
mod large_settlements;
mod leases;
mod long_poll;
mod order;
mod ordering;
mod ordering_load;
mod payloads;
mod queues;
mod redrive;
mod repeated;
mod retries;
mod scheduled;
