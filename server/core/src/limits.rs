//! Limits that are part of the contract and not configurable. Each is named in `docs/configuration.md`.

/// Longest name of a queue, in bytes.
pub const NAME_BYTES_MAX: usize = 200;
/// Longest key that makes a publish repeatable.
pub const IDEMPOTENCY_KEY_BYTES_MAX: usize = 200;
/// Longest key that messages are ordered by.
pub const ORDERING_KEY_BYTES_MAX: usize = 200;
/// All headers of a message together, keys and values, in bytes.
pub const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Body of a frame of the binary protocol, and all of a gRPC message, in bytes.
pub const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Payload and headers of one message together, in bytes: what is accepted has to fit into a frame with its envelope.
pub const MESSAGE_BYTES_MAX: usize = FRAME_BYTES_MAX - 64 * 1024;
/// Messages in a batch, and tokens in a settlement.
pub const BATCH_MESSAGES_MAX: usize = 1_000;
/// Highest priority; the lowest is 0.
pub const PRIORITY_MAX: u8 = 9;
