//! Bodies that only the admin port has.

use std::borrow::Cow;

use serde::de::MapAccess;

use crate::doors::body::{Headers, Members, headers, integer, optional_integer, optional_switch, text};

pub(super) const ID_REQUIRED: &str = "id is required";
pub(super) const QUEUE_REQUIRED: &str = "queue is required";

/// `/ack`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ack<'a> {
    pub(super) id: Cow<'a, str>,
}

impl<'de> Members<'de> for Ack<'de> {
    const NAMES: &'static [&'static str] = &["id"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.id = text(map)?;
        Ok(())
    }
}

/// `/nack`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Nack<'a> {
    pub(super) id: Cow<'a, str>,
    /// Instead of the backoff.
    pub(super) delay_ns: Option<i64>,
    /// False: to the dead letters. Nothing: true.
    requeue: Option<bool>,
}

impl Nack<'_> {
    pub(super) fn dead_letter(&self) -> bool {
        self.requeue == Some(false)
    }
}

impl<'de> Members<'de> for Nack<'de> {
    const NAMES: &'static [&'static str] = &["id", "delay", "requeue"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "id" => self.id = text(map)?,
            "delay" => self.delay_ns = optional_integer(map)?,
            _ => self.requeue = optional_switch(map)?,
        }
        Ok(())
    }
}

/// `/queues/purge` and `/dead-letters/purge`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Purge<'a> {
    pub(super) queue: Cow<'a, str>,
}

impl<'de> Members<'de> for Purge<'de> {
    const NAMES: &'static [&'static str] = &["queue"];

    fn set<A: MapAccess<'de>>(&mut self, _: &str, map: &mut A) -> Result<(), A::Error> {
        self.queue = text(map)?;
        Ok(())
    }
}

/// `/dead-letters/redrive`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Redrive<'a> {
    pub(super) queue: Cow<'a, str>,
    /// Those with all of these.
    pub(super) headers: Headers<'a>,
    pub(super) max_messages: i64,
    pub(super) max_per_second: i64,
}

impl<'de> Members<'de> for Redrive<'de> {
    const NAMES: &'static [&'static str] = &["queue", "headers", "max_messages", "max_per_second"];

    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "queue" => self.queue = text(map)?,
            "headers" => self.headers = headers(map)?,
            "max_messages" => self.max_messages = integer(map)?,
            _ => self.max_per_second = integer(map)?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::body::read;

    #[test]
    fn a_message_is_given_back_to_its_queue_unless_it_is_said_not_to_be() {
        let nack = |body: &'static str| read::<Nack<'_>>(body.as_bytes()).unwrap();
        for body in [
            r#"{"id":"5f"}"#,
            r#"{"id":"5f","requeue":true}"#,
            r#"{"id":"5f","requeue":null,"delay":null}"#,
        ] {
            let nack = nack(body);
            assert_eq!(
                (&*nack.id, nack.delay_ns, nack.dead_letter()),
                ("5f", None, false),
                "{body}"
            );
        }
        let dead = nack(r#"{"ID":"5f","Requeue":false,"delay":0}"#);
        assert_eq!((dead.delay_ns, dead.dead_letter()), (Some(0), true));
    }

    #[test]
    fn members_of_the_wrong_type_make_a_body_invalid_and_unknown_ones_do_not() {
        for body in [
            r#"{"id":5}"#,
            r#"{"id":"5f","delay":"1s"}"#,
            r#"{"id":"5f","requeue":1}"#,
            "[]",
            "",
        ] {
            assert!(read::<Nack<'_>>(body.as_bytes()).is_err(), "{body}");
        }
        assert_eq!(read::<Ack<'_>>(br#"{"id":"5f","delay":"1s"}"#).unwrap().id, "5f");
        for body in [r#"{"queue":[]}"#, r#"{"headers":{"a":1}}"#, r#"{"max_messages":1.5}"#] {
            assert!(read::<Redrive<'_>>(body.as_bytes()).is_err(), "{body}");
        }
        assert!(read::<Purge<'_>>(br#"{"queue":7}"#).is_err());
    }
}
