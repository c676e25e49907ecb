//! A network whose cables can be pulled.
//!
//! Every node has a network namespace of its own, with one cable to a switch; the test sits at the switch. All of it is inside
//! of one more namespace, for networks and for processes, which goes with the process of the test: nothing is left of it,
//! whatever happens.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::cluster::take_turn;
use super::server::server_binary;
use super::wait::eventually;

/// Set for the process inside: the number of the one outside.
const INSIDE: &str = "BOLTQ_TESTS_NETWORK";
const SWITCH: &str = "switch";

/// Runs the test `name` of this executable again, inside of namespaces of its own, and there returns true. Outside it returns
/// false when that has passed, or when namespaces are not allowed here, which is printed.
///
/// # Panics
/// When the test failed inside.
pub fn inside(name: &str) -> bool {
    if outside().is_some() {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
        command
    };
    match unshare().arg("true").output() {
        Ok(output) if output.status.success() => {}
        refused => {
            println!("skipped: no namespaces for networks here: {refused:?}");
            return false;
        }
    }
    let _turn = take_turn();
    let executable = std::env::current_exe().expect("this executable");
    let mut command = unshare();
    command.arg(executable).args(["--exact", name, "--nocapture"]);
    // Built here: there is no way to a registry from inside.
    command.env("BOLTQ_SERVER_BIN", server_binary());
    let status = command
        .env(INSIDE, std::process::id().to_string())
        .status()
        .expect("start the test again");
    assert!(status.success(), "{name} inside of its namespaces: {status}");
    false
}

/// The process that started this one inside of namespaces, if it is inside.
pub(super) fn outside() -> Option<u32> {
    std::env::var(INSIDE).ok()?.parse().ok()
}

/// The switch. There is one in each process that [`inside`] started.
#[derive(Debug)]
pub struct Network(());

impl Network {
    /// Sets up the switch.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn set_up() -> Self {
        assert!(outside().is_some(), "not inside of namespaces");
        ip(&["link", "set", "lo", "up"]);
        ip(&["link", "add", SWITCH, "type", "bridge"]);
        ip(&["addr", "add", "10.77.0.254/24", "dev", SWITCH]);
        ip(&["link", "set", SWITCH, "up"]);
        Self(())
    }

    /// A host with a cable to the switch.
    ///
    /// # Panics
    /// When that is not possible.
    pub fn host(&self, number: u8) -> Host {
        let keeper = Command::new("unshare")
            .args(["--net", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()
            .expect("a namespace");
        let host = Host { number, keeper };
        let own = std::fs::read_link("/proc/self/ns/net").expect("the own namespace");
        eventually(Duration::from_secs(20), "the namespace of a host", || {
            let namespace = std::fs::read_link(format!("/proc/{}/ns/net", host.keeper.id())).ok()?;
            (namespace != own).then_some(())
        });
        let (cable, pid) = (host.cable(), host.keeper.id().to_string());
        ip(&[
            "link", "add", &cable, "type", "veth", "peer", "name", "eth0", "netns", &pid,
        ]);
        ip(&["link", "set", &cable, "master", SWITCH, "up"]);
        host.ip(&["link", "set", "lo", "up"]);
        host.ip(&["addr", "add", &format!("{}/24", host.address()), "dev", "eth0"]);
        host.ip(&["link", "set", "eth0", "up"]);
        host
    }
}

/// A host; it ends when it is dropped.
#[derive(Debug)]
pub struct Host {
    number: u8,
    /// Keeps the namespace.
    keeper: Child,
}

impl Host {
    /// Where it is reached.
    pub fn address(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, 0, self.number)
    }

    /// Nothing reaches it any more, and it reaches nobody.
    pub fn pull_cable(&self) {
        ip(&["link", "set", &self.cable(), "down"]);
    }

    /// As before.
    pub fn plug_in(&self) {
        ip(&["link", "set", &self.cable(), "up"]);
    }

    /// What `others` send to it gets lost on the way; what it sends to them arrives.
    pub fn go_deaf_to<'a>(&self, others: impl IntoIterator<Item = &'a Host>) {
        let address = self.address().to_string();
        for other in others {
            // They have learned for good that it is at a card which nobody has.
            let learned = ["lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "permanent"];
            other.ip(&[&["neigh", "replace", &address], &learned[..]].concat());
        }
    }

    /// The end of [`Host::go_deaf_to`].
    pub fn hear_again<'a>(&self, others: impl IntoIterator<Item = &'a Host>) {
        let address = self.address().to_string();
        for other in others {
            other.ip(&["neigh", "del", &address, "dev", "eth0"]);
        }
    }

    /// A command that runs there.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.keeper.id().to_string(), "--net"]);
        command.arg(program);
        command
    }

    /// Does something there, on a thread of its own.
    ///
    /// # Panics
    /// When it does.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.keeper.id())).expect("the namespace of a host");
        let work = || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("enter a namespace");
            work()
        };
        std::thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    fn cable(&self) -> String {
        format!("cable{}", self.number)
    }

    fn ip(&self, arguments: &[&str]) {
        let mut command = self.command("ip");
        run(command.args(arguments));
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It fails only when it is gone already.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

fn ip(arguments: &[&str]) {
    run(Command::new("ip").args(arguments));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
