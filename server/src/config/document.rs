//! A JSON file as a tree in which a section may be written in several places.
//!
//! Published example files have their `server` section twice. An ordinary JSON map would keep the last and drop the
//! other in silence; here sections are merged, and a *value* that is given twice is an error.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A section, or what is in one.
#[derive(Debug, PartialEq)]
pub(super) enum Node {
    Section(BTreeMap<String, Node>),
    Value(Value),
}

impl Node {
    /// The tree as an ordinary JSON value.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Value(value) => value,
            Self::Section(members) => members
                .into_iter()
                .map(|(name, node)| (name, node.into_value()))
                .collect(),
        }
    }

    fn merge(&mut self, other: Self) -> Result<(), Vec<String>> {
        match (self, other) {
            (Self::Section(members), Self::Section(others)) => {
                for (name, node) in others {
                    insert(members, name, node)?;
                }
                Ok(())
            }
            _ => Err(Vec::new()),
        }
    }
}

/// Fails with the path of the value that was there already, innermost name first.
fn insert(members: &mut BTreeMap<String, Node>, name: String, node: Node) -> Result<(), Vec<String>> {
    let Some(present) = members.get_mut(&name) else {
        members.insert(name, node);
        return Ok(());
    };
    present.merge(node).map_err(|mut path| {
        path.push(name);
        path
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = BTreeMap::new();
        while let Some((name, node)) = map.next_entry()? {
            insert(&mut members, name, node).map_err(|mut path| {
                path.reverse();
                A::Error::custom(format_args!("{} is given twice; keep one of them", path.join(".")))
            })?;
        }
        Ok(Node::Section(members))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            elements.push(element);
        }
        Ok(Node::Value(Value::Array(elements)))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Value(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Value(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Value(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Value(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Value(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Value(Value::Null))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> Result<Value, String> {
        serde_json::from_str::<Node>(text)
            .map(Node::into_value)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_section_in_two_places_is_one_section() {
        let text = r#"{"server":{"http_port":1},"queue":{},"server":{"tls":{"enabled":false}}}"#;
        let whole = json!({"server":{"http_port":1,"tls":{"enabled":false}},"queue":{}});
        assert_eq!(read(text), Ok(whole));
    }

    #[test]
    fn a_value_given_twice_is_an_error_that_names_it() {
        for text in [
            r#"{"queue":{"max_retry":1,"max_retry":1}}"#,
            r#"{"queue":{"max_retry":1},"queue":{"max_retry":2}}"#,
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains("max_retry is given twice"), "{error}");
        }
        assert!(
            read(r#"{"queue":{},"queue":5}"#)
                .unwrap_err()
                .contains("queue is given twice")
        );
    }

    #[test]
    fn every_kind_of_value_is_kept() {
        let text = r#"{"a":[1,-2,2.5,"x",null,true,{"b":[]}],"c":null}"#;
        assert_eq!(read(text), Ok(serde_json::from_str(text).unwrap()));
    }
}
