//! The keys that open the doors.
//!
//! Of the keys in `security.keys` the configuration has only hashes, so that who reads it cannot use them. One round of
//! SHA-256 is enough, and a slow hash would buy nothing: slow hashes are for passwords, which people choose and others guess.
//! These keys are random and long; whoever could search 2^256 of them needs no hash. And a key comes with every call, so that
//! a slow hash would be the cost of each of them, and a way to keep a server busy.

use std::fmt;
use std::sync::Arc;

use ring::digest::{SHA256, digest};
use subtle::{Choice, ConstantTimeEq};

use super::grant::{Grant, Holder};
use super::role::{Role, Roles};
use crate::config::{ApiKey, SecurityConfig};

/// How the hash of a key is written.
const PREFIX: &str = "sha256:";

/// SHA-256 of a key. It is no secret, and is not shown anyway.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Of a key.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, key).as_ref());
        Self(hash)
    }

    /// `sha256:` and 64 hexadecimal digits.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?.as_bytes();
        let (pairs, []) = digits.as_chunks::<2>() else {
            return None;
        };
        let byte = |pair: &[u8; 2]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        Some(Self(bytes?.try_into().ok()?))
    }

    fn is(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    u8::try_from(value).ok()
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(set)")
    }
}

/// One of `security.keys`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyEntry {
    /// What it is called in the log and in refusals.
    pub id: String,
    /// Of the key.
    pub hash: KeyHash,
    /// What it is for.
    pub roles: Roles,
}

/// What `security.api_key` is called where keys have names.
const API_KEY: &str = "security.api_key";
/// What everybody is called where no key is wanted.
const OPEN: &str = "no key wanted";

/// All keys. Each has a holder, which whoever is let in by it has too, and hears of its end by.
pub(super) struct Keyring {
    /// If no key is wanted.
    open: Option<Arc<Holder>>,
    api_key: ApiKey,
    /// Of `api_key`.
    admin: Arc<Holder>,
    keys: Vec<(KeyHash, Arc<Holder>)>,
}

impl Keyring {
    pub(super) fn new(config: &SecurityConfig) -> Self {
        let admin = Roles::of(&[Role::Admin]);
        let is_open = !config.api_key.required() && config.keys.is_empty();
        let holder = |entry: &KeyEntry| (entry.hash, Holder::new(&entry.id, entry.roles));
        Self {
            open: is_open.then(|| Holder::new(OPEN, admin)),
            api_key: config.api_key.clone(),
            admin: Holder::new(API_KEY, admin),
            keys: config.keys.iter().map(holder).collect(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn open(&self) -> Option<Grant> {
        self.open.as_ref().map(Grant::new)
    }

    /// Who shows this; nobody, if it is no key. Takes the same time for each key that is wrong, wherever it differs.
    pub(super) fn grant(&self, shown: &[u8]) -> Option<Grant> {
        if let Some(open) = &self.open {
            return Some(Grant::new(open));
        }
        if self.api_key.required() && self.api_key.accepts(shown) {
            return Some(Grant::new(&self.admin));
        }
        // Who shows nothing has no key, whatever hashes there are.
        if self.keys.is_empty() || shown.is_empty() {
            return None;
        }
        let hash = KeyHash::of(shown);
        let mut found = None;
        for (known, holder) in &self.keys {
            // All are looked at, whichever it is.
            if known.is(&hash).into() {
                found = Some(holder);
            }
        }
        found.map(Grant::new)
    }

    /// Takes the place of `old`: who was let in by a key that is there as it was, stays in; the others have to leave.
    pub(super) fn succeed(mut self, old: &Self) -> Self {
        if self.is_open() && old.is_open() {
            self.open.clone_from(&old.open);
        } else if let Some(open) = &old.open {
            open.revoke();
        }
        if self.api_key == old.api_key {
            self.admin = old.admin.clone();
        } else {
            old.admin.revoke();
        }
        for (hash, holder) in &old.keys {
            let same = self
                .keys
                .iter_mut()
                .find(|(new, kept)| new == hash && kept.is_like(holder));
            match same {
                Some((_, kept)) => *kept = holder.clone(),
                None => holder.revoke(),
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, key: &str, role: Role) -> KeyEntry {
        KeyEntry {
            id: id.to_owned(),
            hash: KeyHash::of(key.as_bytes()),
            roles: Roles::of(&[role]),
        }
    }

    fn config(api_key: &str, keys: Vec<KeyEntry>) -> SecurityConfig {
        SecurityConfig {
            api_key: ApiKey::new(api_key),
            keys,
            auth_failures_per_minute: 60,
        }
    }

    #[test]
    fn a_hash_is_written_with_its_kind_and_all_its_digits() {
        // Of "abc", from FIPS 180-2.
        let hash = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(KeyHash::read(hash), Some(KeyHash::of(b"abc")));
        assert_eq!(
            KeyHash::read(&hash.to_uppercase().replace("SHA", "sha")),
            Some(KeyHash::of(b"abc"))
        );
        for wrong in [
            &hash[7..],
            &hash[..70],
            &format!("{hash}0"),
            &format!("{hash}00"),
            &hash.replace('f', "g"),
            "",
        ] {
            assert_eq!(KeyHash::read(wrong), None, "{wrong}");
        }
        assert_eq!(KeyHash::read("sha256:\u{e9}"), None);
    }

    #[test]
    fn each_key_has_its_roles_and_anything_else_is_nobody() {
        let keys = vec![entry("shop", "a", Role::Producer), entry("mail", "b", Role::Consumer)];
        let ring = Keyring::new(&config("s3cret", keys));
        let who = |shown: &str| ring.grant(shown.as_bytes()).map(|grant| grant.id().to_owned());
        assert_eq!(who("s3cret").as_deref(), Some("security.api_key"));
        assert_eq!((who("a").as_deref(), who("b").as_deref()), (Some("shop"), Some("mail")));
        for wrong in ["", "c", "s3cre", "s3cret ", "sha256:a"] {
            assert_eq!(who(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_empty_key_opens_nothing_where_only_others_are_set() {
        let of_nothing = Keyring::new(&config("", vec![entry("shop", "", Role::Admin)]));
        assert!(of_nothing.grant(b"").is_none());
        let ring = Keyring::new(&config("", vec![entry("shop", "a", Role::Producer)]));
        assert!(!ring.is_open());
        assert!(ring.grant(b"").is_none());
        assert!(Keyring::new(&config("", Vec::new())).grant(b"").is_some());
    }

    #[test]
    fn who_has_a_key_that_stays_stays_and_the_others_go() {
        let old = Keyring::new(&config(
            "s3cret",
            vec![entry("a", "a", Role::Producer), entry("b", "b", Role::Producer)],
        ));
        let [admin, a, b] = ["s3cret", "a", "b"].map(|key| old.grant(key.as_bytes()).unwrap());
        let keys = vec![entry("b", "b", Role::Consumer), entry("a", "a", Role::Producer)];
        let new = Keyring::new(&config("s3cret", keys)).succeed(&old);
        assert_eq!(
            [&admin, &a, &b].map(Grant::is_revoked),
            [false, false, true],
            "b has another role now"
        );
        let last = Keyring::new(&config("", Vec::new())).succeed(&new);
        assert_eq!([&admin, &a].map(Grant::is_revoked), [true, true]);
        let open = last.grant(b"").unwrap();
        let still = Keyring::new(&config("", Vec::new())).succeed(&last);
        assert!(!open.is_revoked());
        let _locked = Keyring::new(&config("s3cret", Vec::new())).succeed(&still);
        assert!(open.is_revoked(), "a key is wanted now, and none was shown");
    }
}
