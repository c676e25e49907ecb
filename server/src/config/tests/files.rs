//! The files in `configs/`.

use std::fmt::Write as _;

use super::*;
use crate::config::keys::{ALL, AnyKey};

const COMMENTED: &str = include_str!("../../../../configs/all.jsonc");
const LINE_CHARS_MAX: usize = 110;

/// All keys at their defaults, each with what it does.
fn commented() -> String {
    let mut out = "// Every key of the configuration, at its default. docs/configuration.md says more.\n\
        // Keys that are left out have the same values, so keep only what you change.\n{\n"
        .to_owned();
    let mut open: Vec<&str> = Vec::new();
    for (index, key) in ALL.iter().enumerate() {
        let mut sections: Vec<&str> = key.name().split('.').collect();
        let name = sections.pop().unwrap();
        let common = open.iter().zip(&sections).take_while(|(a, b)| a == b).count();
        while open.len() > common {
            open.pop();
            let _ = write!(out, "\n{}}}", "  ".repeat(open.len() + 1));
        }
        if index > 0 {
            out.push_str(",\n");
        }
        for section in &sections[common..] {
            open.push(section);
            let _ = writeln!(out, "{}\"{section}\": {{", "  ".repeat(open.len()));
        }
        let indent = "  ".repeat(open.len() + 1);
        for line in comment(*key, LINE_CHARS_MAX - indent.len()) {
            let _ = writeln!(out, "{indent}// {line}");
        }
        let _ = write!(out, "{indent}\"{name}\": {}", key.default_json());
    }
    while open.pop().is_some() {
        let _ = write!(out, "\n{}}}", "  ".repeat(open.len() + 1));
    }
    out + "\n}\n"
}

fn comment(key: &dyn AnyKey, chars_max: usize) -> Vec<String> {
    let variable = key.environment().map_or(String::new(), |name| format!(" {name}."));
    let text = format!("{} Allowed: {}.{variable}", key.about(), key.allowed());
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= chars_max => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[test]
fn the_commented_file_has_every_key_with_what_it_does() {
    let wanted = commented();
    assert!(COMMENTED == wanted, "configs/all.jsonc has to be:\n{wanted}");
    let loaded = load_with(COMMENTED, &[], Flags::default()).unwrap();
    let defaults = load(&Flags::default(), []).unwrap();
    assert_eq!(loaded.values.changed(&defaults.values), Vec::<&str>::new());
}

#[test]
fn every_file_that_is_shipped_loads() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../configs");
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let flags = Flags {
            config: Some(path.clone()),
            ..Flags::default()
        };
        let warnings = load(&flags, []).unwrap_or_else(|error| panic!("{error}")).warnings;
        assert_eq!(warnings, Vec::<String>::new(), "{path:?}");
    }
}

#[test]
fn what_is_wrong_behind_a_comment_is_named_with_its_place() {
    let error = refusal("{ // a comment\n  /* another one */ \"queue\": }");
    assert!(error.contains("line 2 column 30"), "{error}");
    assert_eq!(file("{ // only this\n}").unwrap().server.tcp_port, 9091);
}
