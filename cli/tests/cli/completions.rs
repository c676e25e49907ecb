//! `boltq completions`.

use std::process::Command;

use crate::fake::{boltq, run};

#[test]
fn every_shell_gets_a_script_and_bash_completes_with_it() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        // No server is needed.
        let ran = run(&mut boltq(&["completions", shell, "--addr", "localhost:1"]), b"");
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["publish", "purge-dead-letters", "completions", "linearizable"] {
            assert!(ran.stdout.contains(word), "{word} for {shell}");
        }
    }
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(script.path(), run(&mut boltq(&["completions", "bash"]), b"").stdout).unwrap();
    let bash = |args: &[&str]| Command::new("bash").args(args).arg(script.path()).output().unwrap();
    assert!(bash(&["-n"]).status.success());
    // What bash itself does when tab is pressed behind these words.
    let complete = r#"source "$0"; COMP_WORDS=($WORDS ""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _boltq boltq "" "${COMP_WORDS[COMP_CWORD - 1]}"; echo " ${COMPREPLY[*]} ""#;
    for (words, expected) in subcommands() {
        let mut command = Command::new("bash");
        let output = command
            .args(["-c", complete])
            .arg(script.path())
            .env("WORDS", &words)
            .output()
            .unwrap();
        let offered = String::from_utf8(output.stdout).unwrap();
        assert!(
            offered.contains(&format!(" {expected} ")),
            "{words} {expected}: {offered}"
        );
    }
}

/// Every command with what stands before it, as the help names them.
fn subcommands() -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut open = vec!["boltq".to_owned()];
    while let Some(words) = open.pop() {
        let args: Vec<_> = words.split(' ').skip(1).chain(["--help"]).collect();
        let help = run(&mut boltq(&args), b"").stdout;
        let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        for line in commands.take_while(|line| !line.is_empty()) {
            // Help that goes on in the next line is further to the right.
            if let Some(name) = line.strip_prefix("  ").filter(|line| !line.starts_with(' ')) {
                let name = name.split(' ').next().unwrap().to_owned();
                open.push(format!("{words} {name}"));
                all.push((words.clone(), name));
            }
        }
    }
    assert!(all.len() > 30, "{all:?}");
    all
}
