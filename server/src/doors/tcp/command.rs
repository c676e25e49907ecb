//! Command bytes.

/// What a client can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Publish,
    PublishTopic,
    Consume,
    Ack,
    Nack,
    Ping,
    Stats,
    Auth,
    Prefetch,
    ConfirmSelect,
    ClusterJoin,
    ClusterLeave,
    ClusterStatus,
    ExchangeDeclare,
    ExchangeDelete,
    BindQueue,
    UnbindQueue,
    PublishExchange,
    /// Not in the protocol.
    Unknown(u8),
}

impl Command {
    pub(super) fn of(code: u8) -> Self {
        match code {
            0x01 => Self::Publish,
            0x02 => Self::PublishTopic,
            0x03 => Self::Consume,
            0x04 => Self::Ack,
            0x05 => Self::Nack,
            0x06 => Self::Ping,
            0x07 => Self::Stats,
            0x08 => Self::Auth,
            0x09 => Self::Prefetch,
            0x10 => Self::ClusterJoin,
            0x11 => Self::ClusterLeave,
            0x12 => Self::ClusterStatus,
            0x13 => Self::ConfirmSelect,
            0x14 => Self::ExchangeDeclare,
            0x15 => Self::ExchangeDelete,
            0x16 => Self::BindQueue,
            0x17 => Self::UnbindQueue,
            0x18 => Self::PublishExchange,
            other => Self::Unknown(other),
        }
    }
}
