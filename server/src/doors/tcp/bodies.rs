//! Bodies that this protocol alone has.

use std::borrow::Cow;

use serde::de::MapAccess;

use super::request::INVALID_JSON;
use crate::doors::body::{Members, integer, read, text};

/// ACK and NACK.
#[derive(Default)]
pub(super) struct Settle<'a> {
    pub(super) id: Cow<'a, str>,
}

impl<'de> Members<'de> for Settle<'de> {
    const NAMES: &'static [&'static str] = &["id"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.id = text(map)?;
        Ok(())
    }
}

/// AUTH.
#[derive(Default)]
struct Auth<'a> {
    api_key: Cow<'a, str>,
}

impl<'de> Members<'de> for Auth<'de> {
    const NAMES: &'static [&'static str] = &["api_key"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.api_key = text(map)?;
        Ok(())
    }
}

/// What the body of an AUTH shows. `None`: it is no JSON object.
pub(super) fn shown_key(body: &[u8]) -> Option<Cow<'_, str>> {
    read::<Auth<'_>>(body).ok().map(|auth| auth.api_key)
}

/// CLUSTER_JOIN: a node that is to vote.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ClusterJoin<'a> {
    pub(super) node_id: Cow<'a, str>,
    pub(super) addr: Cow<'a, str>,
}

impl<'a> ClusterJoin<'a> {
    pub(super) fn of(body: &'a [u8]) -> Result<Self, &'static str> {
        match read::<Self>(body) {
            Ok(join) if join.node_id.is_empty() || join.addr.is_empty() => Err("node_id and addr are required"),
            Ok(join) => Ok(join),
            Err(_) => Err(INVALID_JSON),
        }
    }
}

impl<'de> Members<'de> for ClusterJoin<'de> {
    const NAMES: &'static [&'static str] = &["node_id", "addr"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "node_id" => self.node_id = text(map)?,
            _ => self.addr = text(map)?,
        }
        Ok(())
    }
}

/// CLUSTER_LEAVE.
#[derive(Default)]
pub(super) struct ClusterLeave<'a> {
    node_id: Cow<'a, str>,
}

impl<'a> ClusterLeave<'a> {
    pub(super) fn of(body: &'a [u8]) -> Result<Cow<'a, str>, &'static str> {
        match read::<Self>(body) {
            Ok(leave) if leave.node_id.is_empty() => Err("node_id is required"),
            Ok(leave) => Ok(leave.node_id),
            Err(_) => Err(INVALID_JSON),
        }
    }
}

impl<'de> Members<'de> for ClusterLeave<'de> {
    const NAMES: &'static [&'static str] = &["node_id"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.node_id = text(map)?;
        Ok(())
    }
}

/// PREFETCH.
#[derive(Default)]
pub(super) struct Prefetch {
    pub(super) count: i64,
}

impl<'de> Members<'de> for Prefetch {
    const NAMES: &'static [&'static str] = &["count"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.count = integer(map)?;
        Ok(())
    }
}
