//! What an operator does by hand: the script behind `make cluster`, and the command line.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use boltq_tests::harness::{Directory, cli_binary, eventually, free_port, server_binary};
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(60);

/// Three nodes of the script, in a directory of their own. They are stopped when dropped.
struct Script {
    directory: Directory,
    base: u16,
}

impl Script {
    fn new() -> Self {
        Self {
            directory: Directory::new(),
            base: free_base(),
        }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("cluster")
    }

    fn command(&self, what: &str) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(root.join("scripts/cluster.sh"));
        command.arg(what).env("DIR", self.path());
        command.env("BASE", self.base.to_string());
        command.env("BOLTQ_BIN_DIR", server_binary().parent().unwrap());
        command.output().unwrap()
    }

    fn run(&self, what: &str) -> String {
        let output = self.command(what);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{what}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The command line, asking the node of this number.
    fn boltq(&self, node: u16, arguments: &[&str]) -> Output {
        let address = format!("127.0.0.1:{}", 9_091 + self.base + 100 * (node - 1));
        let mut command = Command::new(cli_binary());
        command.args(["--addr", &address]).args(arguments);
        command.output().unwrap()
    }

    fn status(&self, node: u16) -> Option<Value> {
        let output = self.boltq(node, &["--output", "json", "cluster", "status"]);
        serde_json::from_slice(&output.stdout).ok()
    }

    fn process(&self, node: u16) -> String {
        let file = self.path().join(format!("n{node}/pid"));
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        self.command("clean");
    }
}

/// A number to add to the ports so that all nine of them are free.
fn free_base() -> u16 {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let ports = |base: u16| (0..3).flat_map(move |node| [9_090, 9_091, 9_100].map(|port| port + base + 100 * node));
    let mut bases = (0..100).map(|_| free_port() - 9_000);
    bases.find(|base| ports(*base).all(free)).expect("free ports")
}

fn leader(status: &Value) -> Option<String> {
    let groups = status["groups"].as_array()?;
    let queue = groups.iter().find(|group| group["name"] == "queue")?;
    Some(queue["leader_id"].as_str()?.to_owned())
}

#[test]
fn the_script_starts_three_nodes_and_removes_them_without_a_trace() {
    cli_binary();
    let script = Script::new();
    assert!(script.run("start").contains("n3"));
    assert!(script.run("status").contains("n2"));

    // One that was killed is started again by the same command, and the others are left alone.
    let (first, second) = (script.process(1), script.process(2));
    assert!(Command::new("kill").args(["-9", &second]).status().unwrap().success());
    script.run("start");
    assert_eq!(script.process(1), first);
    assert_ne!(script.process(2), second);

    transfer_and_leave(&script);

    script.run("stop");
    assert!(!script.boltq(1, &["cluster", "status"]).status.success());
    script.run("clean");
    assert!(!script.path().exists());
}

fn transfer_and_leave(script: &Script) {
    let status = script.status(1).expect("a status");
    let heir = if leader(&status).unwrap() == "n3" { "n1" } else { "n3" };
    let output = script.boltq(1, &["cluster", "transfer", "queue", heir]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    eventually(WITHIN, "the heir leads", || {
        (leader(&script.status(1)?)? == heir).then_some(())
    });
    let output = script.boltq(1, &["cluster", "leave", "n2"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = script.boltq(1, &["cluster", "leave", "n2"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("n2"), "{said}");
}
