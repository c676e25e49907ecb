//! `docs/conformance.md` is a promise: every test that it names is there, runs with the others, and every row names one.

use std::collections::BTreeMap;
use std::path::Path;

/// What the page says of itself: `path/of/file.rs::name_of_test`.
struct Named<'a> {
    file: &'a str,
    test: &'a str,
}

/// In code marks, wherever they stand.
fn named(text: &str) -> Vec<Named<'_>> {
    let marked = text.split('`').skip(1).step_by(2);
    marked
        .filter_map(|mark| mark.split_once(".rs::"))
        .map(|(path, test)| Named {
            file: path,
            test: test.trim(),
        })
        .collect()
}

/// Why a source has no test of this name that is run; `None` if it has one.
fn missing(source: &str, test: &str) -> Option<&'static str> {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let heads = ["fn ", "async fn "].map(|start| format!("{start}{test}("));
    let Some(at) = lines
        .iter()
        .position(|line| heads.iter().any(|head| line.starts_with(head)))
    else {
        return Some("there is no such function");
    };
    let attributes: Vec<&&str> = lines[..at]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .collect();
    let has = |start: &str| attributes.iter().any(|line| line.starts_with(start));
    if !has("#[test]") && !has("#[tokio::test") {
        return Some("the function is no test");
    }
    has("#[ignore").then_some("the test is not run")
}

/// Everything that is wrong with the page, in words. `read` gives the text of a file of the repository.
fn faults(page: &str, mut read: impl FnMut(&str) -> Option<String>) -> Vec<String> {
    let mut sources: BTreeMap<String, Option<String>> = BTreeMap::new();
    let mut faults = Vec::new();
    for Named { file, test } in named(page) {
        let file = format!("{file}.rs");
        let source = sources.entry(file.clone()).or_insert_with(|| read(&file));
        let fault = match source {
            None => Some("there is no such file"),
            Some(source) => missing(source, test),
        };
        faults.extend(fault.map(|why| format!("{file}::{test}: {why}")));
    }
    faults.extend(
        rows(page)
            .filter(|row| named(row).is_empty())
            .map(|row| format!("no test: {row}")),
    );
    faults
}

/// Rows of tables, without their heads.
fn rows(page: &str) -> impl Iterator<Item = &str> {
    let lines: Vec<&str> = page.lines().collect();
    let is_line = |line: &&str| line.starts_with("| ---");
    let heads: Vec<usize> = (1..lines.len())
        .filter(|at| is_line(&lines[*at]))
        .flat_map(|at| [at - 1, at])
        .collect();
    lines
        .into_iter()
        .enumerate()
        .filter(move |(at, line)| line.starts_with('|') && !heads.contains(at))
        .map(|(_, line)| line)
}

#[test]
fn every_test_that_the_page_names_is_there_and_every_row_names_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/conformance.md")).expect("the page");
    let faults = faults(&page, |file| std::fs::read_to_string(root.join(file)).ok());
    assert!(faults.is_empty(), "docs/conformance.md:\n{}", faults.join("\n"));
    let (rows, named) = (rows(&page).count(), named(&page).len());
    assert!(rows >= 100 && named >= rows, "{rows} rows name {named} tests");
}

#[test]
fn what_the_page_says_wrongly_is_found() {
    let source = "/// Why.\n#[test]\nfn good() {}\n\n#[tokio::test(flavor = \"multi_thread\")]\nasync fn also() {}\n\n\
                  fn helper() {}\n\n#[test]\n#[ignore = \"slow\"]\nfn late() {}\n";
    let read = |file: &str| (file == "a/b.rs").then(|| source.to_owned());
    let page = |cell: &str| format!("text\n\n| what | test |\n| --- | --- |\n| x | {cell} |\n");
    for good in ["`a/b.rs::good`", "`a/b.rs::good`, `a/b.rs::also`"] {
        assert_eq!(faults(&page(good), read), [""; 0], "{good}");
    }
    for (bad, why) in [
        ("", "no test: "),
        ("`a/b.rs`", "no test: "),
        ("`a/c.rs::good`", "no such file"),
        ("`a/b.rs::go`", "no such function"),
        ("`a/b.rs::good`, `a/b.rs::gone`", "no such function"),
        ("`a/b.rs::helper`", "no test"),
        ("`a/b.rs::late`", "not run"),
    ] {
        let found = faults(&page(bad), read);
        assert!(found.len() == 1 && found[0].contains(why), "{bad}: {found:?}");
    }
}
