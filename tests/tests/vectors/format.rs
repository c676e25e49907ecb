//! The files of `tests/vectors/tcp`. What they mean is in the README beside them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Map, Value};

/// In the place of an id when a frame is looked at and not sent.
pub(crate) const SOME_ID: &str = "0123456789abcdef0123456789abcdef";

/// A file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    /// For people.
    #[serde(rename = "about")]
    _about: String,
    #[serde(default)]
    pub(crate) server: Place,
    pub(crate) vectors: Vec<Vector>,
}

/// Who is spoken to.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    /// Of the configuration file.
    #[serde(default)]
    pub(crate) config: Map<String, Value>,
    /// With more than one, they are a cluster.
    #[serde(default)]
    pub(crate) nodes: usize,
    /// Nothing was done there before.
    #[serde(default)]
    pub(crate) fresh: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Vector {
    pub(crate) name: String,
    /// If it is another one than that of the file.
    pub(crate) server: Option<Place>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Step {
    Send(Send),
    Expect(Expect),
    Do(Do),
}

impl Step {
    /// The name of its connection.
    pub(crate) fn line(&self) -> &str {
        let on = match self {
            Self::Send(send) => &send.on,
            Self::Expect(expect) => &expect.on,
            Self::Do(act) => &act.on,
        };
        on.as_deref().unwrap_or("a")
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Send {
    send: Recorded,
    /// The command, if it is one whole frame.
    pub(crate) frame: Option<String>,
    pub(crate) body: Option<String>,
    /// For people, if it is something else.
    pub(crate) what: Option<String>,
    /// It is written together with what is sent next.
    #[serde(default)]
    pub(crate) hold: bool,
    on: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Recorded {
    Whole(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Part {
    Once(String),
    Times { repeat: String, times: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(crate) enum Kind {
    #[serde(rename = "OK")]
    Ok,
    #[serde(rename = "ERROR")]
    Error,
    #[serde(rename = "EMPTY")]
    Empty,
    #[serde(rename = "NOT_LEADER")]
    NotLeader,
    #[serde(rename = "PUSH")]
    Push,
    #[serde(rename = "CLOSE")]
    Close,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) expect: Kind,
    pub(crate) json: Option<Map<String, Value>>,
    /// The text of an ERROR; `…` stands for any text that is not empty.
    pub(crate) error: Option<String>,
    /// The whole frame.
    pub(crate) bytes: Option<String>,
    /// The text of the member `payload`, as it stands in the body.
    pub(crate) payload: Option<String>,
    /// The request is sent again until it is answered so.
    #[serde(default)]
    pub(crate) again: bool,
    /// Pushes of other topics and subscribers may come before.
    #[serde(default)]
    pub(crate) any: bool,
    on: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Do {
    #[serde(rename = "do")]
    pub(crate) act: Act,
    on: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    HalfClose,
    Disconnect,
}

impl Send {
    /// The bytes, with `known` in the places of names.
    ///
    /// # Errors
    /// They are not hexadecimal, or a name is not known.
    pub(crate) fn bytes(&self, known: impl Fn(&str) -> Option<String>) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let mut length_at = None;
        let mut put = |text: &str, times: usize| -> Result<(), String> {
            let mut part = Vec::new();
            decode(text, &known, &mut part, &mut length_at)?;
            bytes.reserve(part.len() * times);
            (0..times).for_each(|_| bytes.extend_from_slice(&part));
            Ok(())
        };
        match &self.send {
            Recorded::Whole(text) => put(text, 1)?,
            Recorded::Parts(parts) => {
                for part in parts {
                    match part {
                        Part::Once(text) => put(text, 1)?,
                        Part::Times { repeat, times } => put(repeat, *times)?,
                    }
                }
            }
        }
        if let Some(at) = length_at {
            let length = u32::try_from(bytes.len() - at - 4).map_err(|error| error.to_string())?;
            bytes[at..at + 4].copy_from_slice(&length.to_le_bytes());
        }
        Ok(bytes)
    }
}

/// Spaces are for people. `{{name}}` is the text that is known by this name, `{{length}}` the number of bytes behind it.
fn decode(
    text: &str,
    known: &impl Fn(&str) -> Option<String>,
    out: &mut Vec<u8>,
    length_at: &mut Option<usize>,
) -> Result<(), String> {
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        if let Some(named) = rest.strip_prefix("{{") {
            let (name, behind) = named.split_once("}}").ok_or("a name that does not end")?;
            rest = behind;
            if name == "length" {
                *length_at = Some(out.len());
                out.extend([0; 4]);
            } else {
                out.extend(known(name).ok_or(format!("{name:?} is not known"))?.into_bytes());
            }
        } else {
            let digits = rest.get(..2).ok_or("half a byte")?;
            out.push(u8::from_str_radix(digits, 16).map_err(|_| format!("{digits:?} is no byte"))?);
            rest = &rest[2..];
        }
        rest = rest.trim_start();
    }
    Ok(())
}

/// Bytes in which no name is.
///
/// # Errors
/// As for [`Send::bytes`].
pub(crate) fn plain_bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    decode(text, &|_| None, &mut bytes, &mut None)?;
    Ok(bytes)
}

/// What a name stands for when nobody is asked.
pub(crate) fn anything(_: &str) -> Option<String> {
    Some(SOME_ID.to_owned())
}

pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors/tcp")
}

/// The groups by the names of their files, in order.
pub(crate) fn groups() -> Vec<(String, Group)> {
    let files = fs::read_dir(folder()).expect("the vectors");
    let mut paths: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    let groups = paths
        .iter()
        .filter(|path| path.extension().is_some_and(|it| it == "json"));
    let named = groups.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned());
    named
        .filter(|name| name != "specification")
        .map(|name| (name.clone(), group(&name)))
        .collect()
}

pub(crate) fn group(name: &str) -> Group {
    read(&folder().join(format!("{name}.json")))
}

pub(crate) fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> T {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
