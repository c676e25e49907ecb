//! `boltq key …`: what needs no server.

use std::fmt::Write as _;
use std::io::{self, Read};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};

use crate::args::ApiKeys;
use crate::error::CliError;
use crate::printer::{KeyHash, Printer};

/// Of a key that is made here: as many as its hash has.
const RANDOM_BYTES: usize = 32;
/// So that somebody who finds a key knows what it is.
const PREFIX: &str = "boltq_";
/// A hash without salt protects only what cannot be guessed.
const KEY_BYTES_MIN: usize = 32;
/// More is no key.
const KEY_BYTES_MAX: u64 = 4 << 10;

pub(super) fn run(printer: &mut Printer, key: ApiKeys) -> Result<(), CliError> {
    let result = match key {
        ApiKeys::Generate => {
            let key = generate()?;
            let hash = hash(&key);
            KeyHash { key: Some(key), hash }
        }
        ApiKeys::Hash => KeyHash {
            key: None,
            hash: hash(&read()?),
        },
    };
    printer.print(&result)?;
    Ok(printer.flush()?)
}

fn generate() -> Result<String, CliError> {
    let mut random = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut random).map_err(|_| CliError::Input {
        file: "the random numbers of the system".to_owned(),
        error: io::ErrorKind::Other.into(),
    })?;
    Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random)))
}

fn read() -> Result<String, CliError> {
    let mut text = String::new();
    let read = io::stdin().lock().take(KEY_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| CliError::Input {
        file: "stdin".to_owned(),
        error,
    })?;
    let key = text.strip_suffix('\n').unwrap_or(&text);
    let key = key.strip_suffix('\r').unwrap_or(key);
    check(key).map_err(CliError::Usage)?;
    Ok(key.to_owned())
}

fn check(key: &str) -> Result<(), String> {
    if !key.bytes().all(|byte| matches!(byte, b' '..=b'~')) || key.trim() != key {
        return Err(
            "a key has ASCII characters from the space to `~`, and no space at either end: no header carries more"
                .into(),
        );
    }
    if key.len() < KEY_BYTES_MIN {
        return Err(format!(
            "the key has {} characters; fewer than {KEY_BYTES_MIN} random ones could be guessed: `boltq key generate` makes one",
            key.len()
        ));
    }
    Ok(())
}

fn hash(key: &str) -> String {
    let mut text = "sha256:".to_owned();
    for byte in digest(&SHA256, key.as_bytes()).as_ref() {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_written_as_the_configuration_wants_it() {
        // Of "abc", from FIPS 180-2.
        let wanted = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash("abc"), wanted);
    }

    #[test]
    fn what_is_made_can_be_used_and_is_not_made_twice() {
        let (one, other) = (generate().unwrap(), generate().unwrap());
        assert_ne!(one, other);
        assert_eq!((check(&one), one.len()), (Ok(()), 6 + 43));
    }

    #[test]
    fn what_could_be_guessed_or_cannot_be_sent_is_refused() {
        assert!(check(&"x".repeat(31)).is_err_and(|why| why.starts_with("the key has 31 characters")));
        assert_eq!(check(&"x".repeat(32)), Ok(()));
        for wrong in ["\t", " ", "\n", "\u{e9}"] {
            assert!(check(&format!("{}{wrong}", "x".repeat(40))).is_err(), "{wrong:?}");
        }
    }
}
