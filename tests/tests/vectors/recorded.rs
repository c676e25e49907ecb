//! The vectors are played, say what they send, and leave nothing of the protocol out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use boltq_tests::harness::binary::frame;
use serde::Deserialize;

use super::format::{Expect, Kind, SOME_ID, Send, Step, Vector, anything, folder, group, groups, read};
use super::matching::{Known, is_like};
use super::place::Running;
use super::play::play;

const HEADER_BYTES: usize = 5;

/// What the protocol has: `specification.json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Specification {
    /// For people.
    #[serde(rename = "about")]
    _about: String,
    pub(crate) commands: Vec<Command>,
    pub(crate) elsewhere: Vec<Elsewhere>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Command {
    pub(crate) byte: String,
    pub(crate) name: String,
    replies: Vec<Kind>,
    pub(crate) errors: Vec<String>,
}

/// An error that no recorded frame brings about.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Elsewhere {
    pub(crate) error: String,
    /// `path::name`.
    pub(crate) test: String,
}

pub(crate) fn specification() -> Specification {
    read(&folder().join("specification.json"))
}

/// Plays all vectors of a file, those with a server of their own on that one.
#[track_caller]
fn play_group(name: &str) {
    let group = group(name);
    let mut shared = None;
    let mut failed = Vec::new();
    for vector in &group.vectors {
        let own = vector.server.as_ref().or(group.server.fresh.then_some(&group.server));
        let played = match own {
            Some(place) => play(vector, &Running::start(place)),
            None => play(vector, shared.get_or_insert_with(|| Running::start(&group.server))),
        };
        failed.extend(played.err().map(|error| format!("{}: {error}", vector.name)));
    }
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        group.vectors.len(),
        failed.join("\n")
    );
}

#[test]
fn frames() {
    play_group("frames");
}

#[test]
fn authentication() {
    play_group("authentication");
}

#[test]
fn session() {
    play_group("session");
}

#[test]
fn publishing() {
    play_group("publishing");
}

#[test]
fn taking() {
    play_group("taking");
}

#[test]
fn topics() {
    play_group("topics");
}

#[test]
fn exchanges() {
    play_group("exchanges");
}

#[test]
fn statistics() {
    play_group("statistics");
}

#[test]
fn cluster() {
    play_group("cluster");
}

#[test]
fn every_file_is_played() {
    let source = include_str!("recorded.rs");
    for (name, group) in groups() {
        assert!(
            source.contains(&format!("\n    play_group({name:?});\n")),
            "{name}.json is not played"
        );
        let names: BTreeSet<&str> = group.vectors.iter().map(|vector| vector.name.as_str()).collect();
        assert_eq!(
            names.len(),
            group.vectors.len(),
            "{name}.json has two vectors of one name"
        );
    }
}

#[test]
fn bytes_are_what_is_said_of_them() {
    let codes: BTreeMap<String, u8> = commands_by_name();
    let mut wrong = Vec::new();
    for (file, group) in groups() {
        for vector in &group.vectors {
            let sends = vector.steps.iter().filter_map(|step| match step {
                Step::Send(send) => Some(send),
                Step::Expect(_) | Step::Do(_) => None,
            });
            let faults = sends.filter_map(|send| said_wrongly(send, &codes));
            wrong.extend(faults.map(|fault| format!("{file}.json, {}: {fault}", vector.name)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn commands_by_name() -> BTreeMap<String, u8> {
    let commands = specification().commands.into_iter();
    commands
        .map(|command| (command.name, u8::from_str_radix(&command.byte, 16).expect("a byte")))
        .collect()
}

fn said_wrongly(send: &Send, codes: &BTreeMap<String, u8>) -> Option<String> {
    let bytes = match send.bytes(anything) {
        Ok(bytes) => bytes,
        Err(error) => return Some(error),
    };
    let (Some(name), Some(body)) = (&send.frame, &send.body) else {
        return send.what.is_none().then(|| "it is not said what is sent".to_owned());
    };
    let unnamed = || u8::from_str_radix(name.strip_prefix("0x")?, 16).ok();
    let code = codes.get(name).copied().or_else(unnamed);
    let Some(code) = code else {
        return Some(format!("there is no command {name}"));
    };
    let right = frame(code, filled(body).as_bytes());
    let hex: String = right.iter().map(|byte| format!("{byte:02x}")).collect();
    (right != bytes).then(|| format!("the bytes of {name} {body} are {hex}, with {SOME_ID} for names"))
}

/// As [`anything`] does it.
fn filled(body: &str) -> String {
    let mut known = Known::default();
    for part in body.split("{{").skip(1) {
        if let Some((name, _)) = part.split_once("}}") {
            known.set(name, SOME_ID);
        }
    }
    known.fill(body).expect("all of its names")
}

/// A reply that is expected, and the command that it answers.
struct Answered<'a> {
    code: u8,
    expect: &'a Expect,
}

/// Replies belong to requests by their position on a connection.
fn answered(vector: &Vector) -> Vec<Answered<'_>> {
    let mut sent: BTreeMap<&str, (Vec<u8>, VecDeque<u8>)> = BTreeMap::new();
    let mut answered = Vec::new();
    for step in &vector.steps {
        let (bytes, codes) = sent.entry(step.line()).or_default();
        match step {
            Step::Send(send) => {
                bytes.extend(send.bytes(anything).expect("bytes"));
                while let Some(code) = take_frame(bytes) {
                    codes.push_back(code);
                }
            }
            Step::Expect(expect) if !matches!(expect.expect, Kind::Push | Kind::Close) => {
                let code = codes.pop_front();
                let code = code.unwrap_or_else(|| panic!("{}: an answer to nothing", vector.name));
                answered.push(Answered { code, expect });
            }
            Step::Expect(_) | Step::Do(_) => {}
        }
    }
    answered
}

/// The command of the first frame, if it is whole; before AUTH its header is enough, and none is cut off there.
fn take_frame(bytes: &mut Vec<u8>) -> Option<u8> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let [code, length @ ..] = *header;
    let end = HEADER_BYTES + u32::from_le_bytes(length) as usize;
    (bytes.len() >= end).then(|| bytes.drain(..end))?;
    Some(code)
}

/// Whether a vector has everything that the protocol says of a command, and where not, what is missing.
fn missing(command: &Command, answers: &[Answered<'_>]) -> Vec<String> {
    let code = u8::from_str_radix(&command.byte, 16).expect("a byte");
    let own: Vec<&Expect> = answers
        .iter()
        .filter(|it| it.code == code)
        .map(|it| it.expect)
        .collect();
    let replies = command
        .replies
        .iter()
        .filter(|kind| !own.iter().any(|expect| expect.expect == **kind));
    let errors = command.errors.iter().filter(|error| {
        let texts = own.iter().filter_map(|expect| expect.error.as_deref());
        !texts.into_iter().any(|text| is_like(error, text))
    });
    let name = &command.name;
    replies
        .map(|kind| format!("no vector answers {name} with {kind:?}"))
        .chain(errors.map(|error| format!("no vector answers {name} with the error {error:?}")))
        .collect()
}

#[test]
fn every_command_status_and_error_of_the_protocol_has_a_vector() {
    let groups = groups();
    let vectors = || groups.iter().flat_map(|(_, group)| &group.vectors);
    let answers: Vec<Answered<'_>> = vectors().flat_map(answered).collect();
    let specification = specification();
    let missing: Vec<String> = specification
        .commands
        .iter()
        .flat_map(|command| missing(command, &answers))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    // And nothing is expected that it does not have.
    let known: BTreeMap<u8, &Command> = specification
        .commands
        .iter()
        .map(|command| (u8::from_str_radix(&command.byte, 16).expect("a byte"), command))
        .collect();
    for Answered { code, expect } in &answers {
        let Some(command) = known.get(code) else {
            let text = expect.error.as_deref().unwrap_or_default();
            assert!(
                text == format!("unknown command: {code:#04x}") || text == BEFORE_AUTH,
                "{code:#04x}: {text:?}"
            );
            continue;
        };
        assert!(
            command.replies.contains(&expect.expect),
            "{} {:?}",
            command.name,
            expect.expect
        );
        if let Some(text) = &expect.error {
            let listed = command.errors.iter().any(|error| is_like(error, text));
            assert!(listed, "{}: {text:?} is not in specification.json", command.name);
        }
    }
    for unasked in [Kind::Push, Kind::Close] {
        let is_it = |step: &Step| matches!(step, Step::Expect(expect) if expect.expect == unasked);
        assert!(vectors().any(|vector| vector.steps.iter().any(is_it)), "{unasked:?}");
    }
}

const BEFORE_AUTH: &str = "authentication required, send AUTH first";

#[test]
fn a_command_without_a_vector_is_noticed() {
    let command = |replies: Vec<Kind>, errors: &[&str]| Command {
        byte: "06".to_owned(),
        name: "PING".to_owned(),
        replies,
        errors: errors.iter().map(|error| (*error).to_owned()).collect(),
    };
    let vector: Vector = serde_json::from_str(
        r#"{"name": "x", "steps": [{"send": "06 00", "what": "half"}, {"send": "000000", "what": "half"}, {"expect": "ERROR", "error": "no: …"}]}"#,
    )
    .unwrap();
    let answers = answered(&vector);
    assert_eq!(missing(&command(vec![Kind::Error], &["no: …"]), &answers), [""; 0]);
    assert_eq!(missing(&command(vec![Kind::Ok], &[]), &answers).len(), 1);
    assert_eq!(missing(&command(vec![], &["never", "no: …"]), &answers).len(), 1);
}
