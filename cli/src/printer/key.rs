//! Results of `boltq key …`.

use std::io::{self, Write};

use serde::Serialize;

use super::{Show, json};

/// A key, if it was made here, and its hash.
#[derive(Debug, Serialize)]
pub(crate) struct KeyHash {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    pub(crate) hash: String,
}

impl Show for KeyHash {
    fn table(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.key {
            Some(key) => writeln!(out, "key   {key}\nhash  {}", self.hash),
            None => writeln!(out, "{}", self.hash),
        }
    }

    fn json(&self, out: &mut dyn Write) -> io::Result<()> {
        json::line(self, out)
    }
}
