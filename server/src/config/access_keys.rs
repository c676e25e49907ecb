//! `security.keys`: keys with roles.

use std::collections::BTreeSet;

use boltq_core::check_name;
use serde::Deserialize;
use serde_json::Value;

use super::error::ConfigError;
use super::keys as key;
use super::kind::{Given, Kind};
use super::layers::Settings;
use crate::access::{KeyEntry, KeyHash, Role, Roles};

/// More are looked through with every call.
const KEYS_MAX: usize = 1_000;

/// Objects, which are looked into by [`entries`]: what is wrong with one of them needs a sentence of its own.
pub(super) struct Entries;

impl Kind for Entries {
    type Value = Vec<Value>;
    const SECRET: bool = true;

    fn read(&self, given: &Given) -> Option<Vec<Value>> {
        match given {
            Given::Json(Value::Array(entries)) if entries.len() <= KEYS_MAX => Some(entries.clone()),
            _ => None,
        }
    }

    fn default_json(&self) -> Value {
        Value::Array(Vec::new())
    }

    fn allowed(&self) -> String {
        format!("up to {KEYS_MAX} objects `id`, `hash`, `role`")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    hash: String,
    role: OneOrMore,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "role has to be a text, or a list of texts")]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

pub(super) fn entries(settings: &Settings) -> Result<Vec<KeyEntry>, ConfigError> {
    let mut entries = Vec::new();
    let (mut ids, mut hashes) = (BTreeSet::new(), Vec::new());
    for (index, value) in settings.get(&key::SECURITY_KEYS)?.into_iter().enumerate() {
        let refused = |why: String| ConfigError::Entry {
            key: key::SECURITY_KEYS.name,
            index,
            why,
        };
        let entry = entry(value).map_err(refused)?;
        if !ids.insert(entry.id.clone()) {
            return Err(refused(format!("another key has the id {:?}", entry.id)));
        }
        if hashes.contains(&entry.hash) {
            return Err(refused(format!(
                "{:?} has the hash of another key; each needs a key of its own",
                entry.id
            )));
        }
        hashes.push(entry.hash);
        entries.push(entry);
    }
    Ok(entries)
}

/// What is said about it never shows a value that may be a key, written in the wrong place.
fn entry(value: Value) -> Result<KeyEntry, String> {
    if !value.is_object() {
        return Err("it has to be an object with id, hash and role".to_owned());
    }
    let Written { id, hash, role } = serde_json::from_value(value).map_err(|error| error.to_string())?;
    check_name(&id).map_err(|error| format!("id: {error}"))?;
    let hash = KeyHash::read(&hash).ok_or_else(|| {
        format!(
            "the hash of {id:?} has to be sha256: and 64 hexadecimal digits; `boltq key generate` makes key and hash"
        )
    })?;
    if hash == KeyHash::of(b"") {
        return Err(format!(
            "the hash of {id:?} is that of an empty key, which everybody has; was the variable set that it was made from?"
        ));
    }
    let names = match role {
        OneOrMore::One(name) => vec![name],
        OneOrMore::More(names) => names,
    };
    let roles: Option<Vec<_>> = names.iter().map(|name| Role::named(name)).collect();
    let roles = roles.filter(|roles| !roles.is_empty());
    let roles =
        roles.ok_or_else(|| format!("the role of {id:?} has to be admin, producer, consumer, or a list of these"))?;
    Ok(KeyEntry {
        id,
        hash,
        roles: Roles::of(&roles),
    })
}
