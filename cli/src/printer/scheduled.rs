//! Messages that are not due yet, with the names of `boltq.queue.v1`.

use std::io::{self, Write};

use boltq_proto::queue::v1 as pb;
use serde::Serialize;

use super::routing::Row;
use super::{Id, Show, json};
use crate::error::CliError;

/// One that waits.
#[derive(Debug, Serialize)]
pub(crate) struct ScheduledMessage {
    message_id: Id,
    /// RFC 3339.
    deliver_at: String,
    priority: i32,
}

/// One has another due time.
#[derive(Debug, Serialize)]
pub(crate) struct Rescheduled {
    pub(crate) message_id: Id,
    /// RFC 3339.
    pub(crate) deliver_at: String,
}

impl ScheduledMessage {
    pub(crate) fn read(message: &pb::ScheduledMessage) -> Result<Self, CliError> {
        Ok(Self {
            message_id: Id::read(&message.message_id)?,
            deliver_at: message.deliver_at.unwrap_or_default().to_string(),
            priority: message.priority,
        })
    }
}

impl Row<3> for ScheduledMessage {
    const HEADER: [&'static str; 3] = ["MESSAGE", "DUE", "PRIORITY"];

    fn cells(&self) -> [String; 3] {
        [
            self.message_id.0.to_string(),
            self.deliver_at.clone(),
            self.priority.to_string(),
        ]
    }
}

impl Show for Rescheduled {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{} is due at {}", self.message_id.0, self.deliver_at)
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}
