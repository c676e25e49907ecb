//! `docs/protocol.md` has the commands and errors of the vectors, and no others.

use std::collections::BTreeSet;
use std::path::Path;

use super::matching::is_like;
use super::recorded::specification;

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/protocol.md")).expect("the page")
}

/// The rows of the first table below a heading, without its head, each as its cells.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let below = page.split_once(&format!("\n{heading}\n")).expect("the heading").1;
    let table = below.lines().skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// Texts in code marks.
fn marked(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// `<detail>` and `…` stand for any text.
fn pattern(text: &str) -> String {
    let mut pattern = String::new();
    let mut parts = text.split('<');
    pattern += parts.next().unwrap_or_default();
    for part in parts {
        pattern += "…";
        pattern += part.split_once('>').map_or(part, |(_, behind)| behind);
    }
    pattern
}

#[test]
fn the_guide_has_the_commands_of_the_vectors() {
    let page = page();
    let rows = rows(&page, "## Commands");
    let documented: BTreeSet<(String, String)> = rows
        .iter()
        .map(|cells| {
            (
                cells[0].trim_matches('`').trim_start_matches("0x").to_owned(),
                cells[1].to_owned(),
            )
        })
        .collect();
    let commands = specification().commands.into_iter();
    let recorded = commands.map(|command| (command.byte, command.name)).collect();
    assert_eq!(documented, recorded);
}

#[test]
fn the_guide_has_the_errors_of_the_vectors_and_of_other_tests() {
    let page = page();
    let rows = rows(&page, "## Errors");
    let documented: Vec<String> = rows.iter().flat_map(|cells| marked(cells[0])).map(pattern).collect();
    let specification = specification();
    let recorded = specification.commands.iter().flat_map(|command| &command.errors);
    let recorded: BTreeSet<&String> = recorded.collect();
    let elsewhere: Vec<&String> = specification.elsewhere.iter().map(|it| &it.error).collect();
    let covers = |one: &str, other: &str| one == other || is_like(one, other) || is_like(other, one);
    let unknown: Vec<&String> = documented
        .iter()
        .filter(|text| *text != "unknown command: 0x7f")
        .filter(|text| {
            !recorded
                .iter()
                .copied()
                .chain(elsewhere.iter().copied())
                .any(|known| covers(known, text))
        })
        .collect();
    assert!(unknown.is_empty(), "neither recorded nor shown elsewhere: {unknown:#?}");
    let silent: Vec<&&String> = recorded
        .iter()
        .filter(|known| !documented.iter().any(|text| covers(text, known)))
        .collect();
    assert!(silent.is_empty(), "not in docs/protocol.md: {silent:#?}");
}

#[test]
fn errors_that_are_shown_elsewhere_have_tests() {
    for shown in specification().elsewhere {
        let (file, test) = shown.test.split_once("::").expect("path::name");
        let source = std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(
            source.contains(&format!("fn {test}(")),
            "{}: no {test} in {file}",
            shown.error
        );
    }
}
