//! A test bed for tests in Rust: on a thread of its own, because it waits by blocking, and a cluster cannot move between threads.

use std::sync::mpsc;
use std::thread::JoinHandle;

use serde_json::Value;
use tokio::sync::oneshot;

use super::{Bed, TestBedOptions, answer};

type Command = (String, oneshot::Sender<Value>);

/// Servers that are told what to do as `boltq-testbed` is. Killed when dropped.
#[derive(Debug)]
pub struct BedThread {
    ready: Value,
    commands: Option<mpsc::Sender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl BedThread {
    /// Starts servers and waits until they are ready.
    ///
    /// # Panics
    /// When they do not become ready.
    pub async fn start(options: TestBedOptions) -> Self {
        let (commands, given) = mpsc::channel::<Command>();
        let (says, ready) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let mut bed = Bed::start(&options).expect("options that fit together");
            says.send(bed.ready()).expect("a test that waits");
            for (line, reply) in given {
                // A test that has failed does not wait any more.
                let _ = reply.send(answer(&mut bed, &line));
            }
        });
        Self {
            ready: ready.await.expect("servers"),
            commands: Some(commands),
            thread: Some(thread),
        }
    }

    /// Where the nodes listen for clients.
    ///
    /// # Panics
    /// Never: the first line has them.
    pub fn addresses(&self) -> Vec<String> {
        self.of_nodes("messaging")
    }

    /// Where the nodes listen for operators.
    ///
    /// # Panics
    /// Never: the first line has them.
    pub fn admins(&self) -> Vec<String> {
        self.of_nodes("admin")
    }

    fn of_nodes(&self, name: &str) -> Vec<String> {
        let nodes = self.ready["nodes"].as_array().expect("nodes").iter();
        nodes
            .map(|node| node[name].as_str().expect("an address").to_owned())
            .collect()
    }

    /// A file that clients need to speak TLS: `ca_file`, `cert_file` or `key_file`.
    ///
    /// # Panics
    /// When they speak none.
    pub fn tls_file(&self, name: &str) -> String {
        self.ready["tls"][name].as_str().expect("a file").to_owned()
    }

    /// Carries out a command; the answer.
    ///
    /// # Panics
    /// When it is not carried out.
    pub async fn command(&self, line: &str) -> Value {
        let (reply, answer) = oneshot::channel();
        let commands = self.commands.as_ref().expect("a thread");
        commands.send((line.to_owned(), reply)).expect("a thread that runs");
        let answer = answer.await.expect("an answer");
        assert_eq!(answer["ok"], true, "{line}: {answer}");
        answer
    }
}

impl Drop for BedThread {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic of it has been printed.
            let _ = thread.join();
        }
    }
}
