//! The servers and what can be done to them.

use std::io;

use serde_json::{Value, json};

use super::TestBedOptions;
use crate::harness::tls::{Authority, Identity};
use crate::harness::{Cluster, Directory, ProcessStat, Server, ServerOptions};

/// Servers that run, or did. Killed when dropped.
pub struct Bed {
    servers: Servers,
    /// What clients need to speak TLS, as it is told to them.
    tls: Value,
    /// Where the certificates lie.
    _certificates: Option<Directory>,
}

enum Servers {
    Single(Box<Server>),
    Cluster(Cluster),
}

type Answer = Result<Value, String>;

impl Bed {
    /// Starts them and waits until they are ready.
    ///
    /// # Errors
    /// The options contradict each other.
    ///
    /// # Panics
    /// When they do not become ready.
    pub fn start(options: &TestBedOptions) -> io::Result<Self> {
        let mut server = options.server()?;
        let (mut tls, mut certificates) = (Value::Null, None);
        if options.tls || options.mtls {
            let directory = Directory::new();
            (server, tls) = with_tls(server, &directory, options.mtls);
            certificates = Some(directory);
        }
        let servers = match options.nodes {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "--nodes 0 would be no server",
                ));
            }
            1 => Servers::Single(Box::new(Server::start(&server))),
            count => Servers::Cluster(Cluster::start_with(count, &server)),
        };
        Ok(Self {
            servers,
            tls,
            _certificates: certificates,
        })
    }

    /// The first line.
    pub fn ready(&self) -> Value {
        let node = |name: &str, messaging: String, admin: String| json!({"name": name, "messaging": messaging, "admin": admin});
        let nodes: Vec<Value> = match &self.servers {
            Servers::Single(server) => vec![node("n1", server.messaging().to_string(), server.admin().to_string())],
            Servers::Cluster(cluster) => {
                let nodes = cluster.nodes().iter();
                nodes
                    .map(|it| node(it.name(), it.messaging().to_string(), it.admin().to_string()))
                    .collect()
            }
        };
        json!({"ready": true, "nodes": nodes, "tls": self.tls})
    }

    /// Carries out one line.
    ///
    /// # Errors
    /// It is no command, or cannot be done to these servers.
    ///
    /// # Panics
    /// When what it waits for does not happen in time.
    pub fn carry_out(&mut self, line: &str) -> Answer {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["leader"] => self.leader(),
            ["kill-leader"] => {
                let answer = self.leader()?;
                self.kill(self.node_of(&answer)?)?;
                Ok(answer)
            }
            ["settled"] => self.done(|bed| {
                bed.await_settled();
                Ok(())
            }),
            ["restart-killed"] => self.restart_killed(),
            ["rolling-restart"] => self.done(|bed| {
                for node in 0..bed.count() {
                    bed.terminate(node)?;
                    bed.start_node(node)?;
                }
                Ok(())
            }),
            [command, node] => {
                let node = self.index(node)?;
                self.carry_out_at(command, node)
            }
            _ => Err(unknown(line)),
        }
    }

    fn carry_out_at(&mut self, command: &str, node: usize) -> Answer {
        match command {
            "kill" => self.done(|bed| bed.kill(node)),
            "start" => self.done(|bed| bed.start_node(node)),
            "restart" => self.done(|bed| {
                bed.kill(node)?;
                bed.start_node(node)
            }),
            "terminate" => self.terminate(node).map(|code| json!({"exit_code": code})),
            "pause" => self.done(|bed| bed.cluster("pause").map(|cluster| cluster.pause(node))),
            "resume" => self.done(|bed| bed.cluster("resume").map(|cluster| cluster.resume(node))),
            "stat" => {
                let stat = self.stat(node).ok_or_else(|| format!("node {node} does not run"))?;
                Ok(json!({"rss_bytes": stat.rss_bytes(), "open_files": stat.open_files()}))
            }
            "log" => Ok(json!({"text": self.log(node)})),
            _ => Err(unknown(command)),
        }
    }

    fn done(&mut self, act: impl FnOnce(&mut Self) -> Result<(), String>) -> Answer {
        act(self).map(|()| json!({}))
    }

    fn count(&self) -> usize {
        match &self.servers {
            Servers::Single(_) => 1,
            Servers::Cluster(cluster) => cluster.nodes().len(),
        }
    }

    fn index(&self, word: &str) -> Result<usize, String> {
        let index: Option<usize> = word.parse().ok();
        let count = self.count();
        index
            .filter(|index| *index < count)
            .ok_or_else(|| format!("{word:?} is no node; they are numbered from 0 to {}", count - 1))
    }

    fn cluster(&mut self, command: &str) -> Result<&mut Cluster, String> {
        match &mut self.servers {
            Servers::Single(_) => Err(format!("{command} is for clusters; start with --nodes 3")),
            Servers::Cluster(cluster) => Ok(cluster),
        }
    }

    fn leader(&self) -> Answer {
        Ok(match &self.servers {
            Servers::Single(_) => json!({"node": 0, "name": "n1"}),
            Servers::Cluster(cluster) => {
                let leader = cluster.leader();
                json!({"node": leader, "name": cluster.node(leader).name()})
            }
        })
    }

    fn node_of(&self, answer: &Value) -> Result<usize, String> {
        self.index(&answer["node"].to_string())
    }

    fn runs(&mut self, node: usize) -> bool {
        match &mut self.servers {
            Servers::Single(server) => server.exited().is_none(),
            Servers::Cluster(cluster) => cluster.node(node).runs(),
        }
    }

    fn kill(&mut self, node: usize) -> Result<(), String> {
        match &mut self.servers {
            Servers::Single(server) => server.kill(),
            Servers::Cluster(cluster) => cluster.kill(node),
        }
        Ok(())
    }

    fn terminate(&mut self, node: usize) -> Result<Option<i32>, String> {
        if !self.runs(node) {
            return Err(format!("node {node} does not run"));
        }
        let status = match &mut self.servers {
            Servers::Single(server) => server.terminate(),
            Servers::Cluster(cluster) => cluster.terminate(node),
        };
        Ok(status.code())
    }

    fn start_node(&mut self, node: usize) -> Result<(), String> {
        if self.runs(node) {
            return Err(format!("node {node} runs"));
        }
        match &mut self.servers {
            Servers::Single(server) => server.start_again(),
            Servers::Cluster(cluster) => {
                cluster.start_node(node);
                cluster.await_settled();
            }
        }
        Ok(())
    }

    /// All at once: without a majority none of them gets ready alone.
    fn restart_killed(&mut self) -> Answer {
        let stopped: Vec<usize> = (0..self.count()).filter(|node| !self.runs(*node)).collect();
        match &mut self.servers {
            Servers::Single(server) if !stopped.is_empty() => server.start_again(),
            Servers::Single(_) => {}
            Servers::Cluster(cluster) => {
                for node in &stopped {
                    cluster.start_node(*node);
                }
                cluster.await_settled();
            }
        }
        Ok(json!({"nodes": stopped}))
    }

    fn await_settled(&self) {
        if let Servers::Cluster(cluster) = &self.servers {
            cluster.await_settled();
        }
    }

    fn stat(&mut self, node: usize) -> Option<ProcessStat> {
        match &mut self.servers {
            Servers::Single(server) => server.exited().is_none().then(|| server.stat()),
            Servers::Cluster(cluster) => cluster.node(node).stat(),
        }
    }

    fn log(&self, node: usize) -> String {
        match &self.servers {
            Servers::Single(server) => server.log(),
            Servers::Cluster(cluster) => cluster.node(node).log(),
        }
    }
}

/// The servers show a certificate of a new authority, and clients get the files of another one.
fn with_tls(options: ServerOptions, directory: &Directory, mutual: bool) -> (ServerOptions, Value) {
    let authority = Authority::new();
    let ca_file = authority.write(directory.path());
    let server = authority.issue(directory.path(), "server");
    let client: Identity = authority.issue(directory.path(), "client");
    let client_auth = if mutual { "required" } else { "optional" };
    let options = authority
        .options(options, &server)
        .set("server.tls.ca_file", ca_file.to_string_lossy())
        .set("server.tls.client_auth", client_auth)
        .tls(authority.client(Some(&client), &["http/1.1"]));
    let tls = json!({"ca_file": ca_file, "cert_file": client.cert, "key_file": client.key});
    (options, tls)
}

fn unknown(line: &str) -> String {
    format!("unknown command {line:?}; those that there are stand in tests/conformance/README.md")
}
