//! One server process.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::directory::build_directory;
use super::network::Host;
use super::{Directory, ProcessStat, ServerOptions, eventually, free_neighbours, http, tls};

/// A start replays a log and may share the machine with a build.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// The server promises to stop within 10 s.
const STOPPED_WITHIN: Duration = Duration::from_secs(15);
/// Somebody else may take the ports between their choice and the bind.
const START_ATTEMPTS: usize = 5;
const LOG_LINES_SHOWN: usize = 60;

/// A server that did not become ready.
#[derive(Debug)]
pub struct StartError {
    /// How it ended; `None` if it ran on without becoming ready, and was killed.
    pub status: Option<ExitStatus>,
    /// What it wrote.
    pub log: String,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "the server ended before it was ready: {status}\n{}", self.log),
            None => write!(f, "the server was not ready within {READY_WITHIN:?}\n{}", self.log),
        }
    }
}

/// A running server. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    directory: Arc<Directory>,
    child: Child,
    admin: SocketAddr,
    messaging: SocketAddr,
    config: PathBuf,
    log: PathBuf,
    started_in: Duration,
}

impl Server {
    /// Starts a server in a new directory and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready; the message holds its log.
    pub fn start(options: &ServerOptions) -> Self {
        Self::start_in(options, Arc::new(Directory::new())).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a server on the data of `directory` and waits until it is ready.
    ///
    /// # Errors
    /// It ended, or was not ready in time.
    pub fn start_in(options: &ServerOptions, directory: Arc<Directory>) -> Result<Self, StartError> {
        for _ in 1..START_ATTEMPTS {
            match Self::attempt(options, Arc::clone(&directory)) {
                Err(error) if error.log.to_lowercase().contains("address already in use") => {}
                result => return result,
            }
        }
        Self::attempt(options, directory)
    }

    fn attempt(options: &ServerOptions, directory: Arc<Directory>) -> Result<Self, StartError> {
        let (admin, messaging) = free_neighbours();
        let (admin, messaging) = (local(admin), local(messaging));
        let log = directory.path().join(format!("server-{}.log", messaging.port()));
        let config = directory.path().join(format!("config-{}.json", messaging.port()));
        let listening = options
            .clone()
            .set("server.http_port", admin.port())
            .set("server.tcp_port", messaging.port());
        std::fs::write(&config, listening.to_json()).expect("write the configuration");
        // Building it, the first time, is no part of the start.
        server_binary();
        let started = Instant::now();
        let child = spawn(options, &config, directory.path(), &log);
        let mut server = Self {
            options: options.clone(),
            directory,
            child,
            admin,
            messaging,
            config,
            log,
            started_in: Duration::ZERO,
        };
        server.wait_until_ready(started)?;
        server.started_in = started.elapsed();
        Ok(server)
    }

    fn wait_until_ready(&mut self, started: Instant) -> Result<(), StartError> {
        loop {
            if self.is_ready() {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().expect("wait for the server") {
                return Err(StartError {
                    status: Some(status),
                    log: self.log(),
                });
            }
            if started.elapsed() > READY_WITHIN {
                self.kill();
                return Err(StartError {
                    status: None,
                    log: self.log(),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_ready(&self) -> bool {
        let answer = match self.options.tls_client() {
            None => http::get(self.admin, "/readyz"),
            Some(client) => tls::connect(self.admin, client)
                .and_then(|stream| http::request_over(stream, ("GET", "/readyz"), &[], b"")),
        };
        answer.is_ok_and(|response| response.status == 200)
    }

    /// Writes a new configuration where the server looks for it, and SIGHUP. What is applied is in the log.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn reload(&self, options: &ServerOptions) {
        let ports = options
            .clone()
            .set("server.http_port", self.admin.port())
            .set("server.tcp_port", self.messaging.port());
        self.reload_text(&ports.to_json());
    }

    /// As [`Server::reload`], with whatever is in the file then.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn reload_text(&self, text: &str) {
        std::fs::write(&self.config, text).expect("write the configuration");
        self.signal(Signal::HUP);
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill(&mut self) {
        // It fails only when the process is gone already.
        let _ = self.child.kill();
        self.child.wait().expect("wait for the killed server");
    }

    /// SIGTERM; returns how the process ended.
    ///
    /// # Panics
    /// When it does not end in time.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        eventually(STOPPED_WITHIN, "the server stops", || self.exited())
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// When the process is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap_or_else(|error| panic!("signal the server: {error}"));
    }

    /// How the process ended, if it did.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("wait for the server")
    }

    /// Kills the server if it runs and starts another one on the same data, on other ports.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn restart(&mut self) {
        self.restart_with(&self.options.clone());
    }

    /// As [`Server::restart`], with another configuration.
    ///
    /// # Panics
    /// When it does not become ready.
    pub fn restart_with(&mut self, options: &ServerOptions) {
        self.kill();
        let next = Self::start_in(options, Arc::clone(&self.directory));
        *self = next.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Starts a new process with the same data and addresses, in place of one that has ended.
    ///
    /// # Panics
    /// When that one runs, or the new one does not become ready.
    pub fn start_again(&mut self) {
        assert!(self.exited().is_some(), "the server runs");
        let started = Instant::now();
        self.child = spawn(&self.options, &self.config, self.directory.path(), &self.log);
        self.wait_until_ready(started).unwrap_or_else(|error| panic!("{error}"));
        self.started_in = started.elapsed();
    }

    /// HTTP.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// gRPC and the binary protocol.
    pub fn messaging(&self) -> SocketAddr {
        self.messaging
    }

    /// Time from the start of the process until it was ready.
    pub fn started_in(&self) -> Duration {
        self.started_in
    }

    /// Figures of the process.
    pub fn stat(&self) -> ProcessStat {
        ProcessStat::of(self.child.id())
    }

    /// Where its data lies.
    pub fn directory(&self) -> &Arc<Directory> {
        &self.directory
    }

    /// What it was started with.
    pub fn options(&self) -> &ServerOptions {
        &self.options
    }

    /// What this process wrote so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..];
            eprintln!(
                "--- server on {}, end of its log\n{}\n---",
                self.messaging,
                shown.join("\n")
            );
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

pub(super) fn spawn(options: &ServerOptions, config: &Path, directory: &Path, log: &Path) -> Child {
    spawn_with(options.command(server_binary()), config, directory, log)
}

/// As [`spawn`], on another host.
pub(super) fn spawn_on(host: &Host, config: &Path, directory: &Path, log: &Path) -> Child {
    spawn_with(host.command(server_binary()), config, directory, log)
}

fn spawn_with(mut command: Command, config: &Path, directory: &Path, log: &Path) -> Child {
    let open = || -> File {
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .expect("open the server's log")
    };
    command.arg("--config").arg(config).current_dir(directory);
    for (name, _) in std::env::vars_os() {
        // What a person has set for a server of their own must not change the one under test.
        if name.to_string_lossy().starts_with("BOLTQ_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(open()).stderr(open());
    command
        .spawn()
        .unwrap_or_else(|error| panic!("start {}: {error}", server_binary().display()))
}

static BINARY: OnceLock<PathBuf> = OnceLock::new();

/// Makes `path` the server that this process starts; has no effect when one was started already.
pub fn use_server_binary(path: PathBuf) {
    // A second choice is refused by the lock, as promised.
    let _ = BINARY.set(path);
}

/// The server to test: `BOLTQ_SERVER_BIN`, or built in the profile of this executable, once per process.
///
/// # Panics
/// When it does not build.
pub fn server_binary() -> &'static Path {
    BINARY.get_or_init(|| match std::env::var_os("BOLTQ_SERVER_BIN") {
        Some(path) => std::path::absolute(path).expect("an absolute path"),
        None => built("boltq-server"),
    })
}

/// The command line, built in the profile of this executable, once per process.
///
/// # Panics
/// When it does not build.
pub fn cli_binary() -> &'static Path {
    static CLI: OnceLock<PathBuf> = OnceLock::new();
    CLI.get_or_init(|| built("boltq"))
}

/// Where the binary of this name is. Both are built at once, so that a test that runs the command line after a while does not wait
/// for a compiler while its connections answer no pings.
fn built(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(build).join(name)
}

/// Beginnings of names of variables.
const ABOUT_PACKAGE: [&str; 2] = ["CARGO_PKG_", "CARGO_MANIFEST_"];

fn build() -> PathBuf {
    // The packages that `make docs` names, so that nothing is compiled twice for other features.
    cargo_build(&["--package", "boltq-server", "--package", "boltq-cli"])
}

/// Builds programs as this one was built, and answers where they are.
///
/// # Panics
/// When they cannot be built.
pub fn cargo_build(which: &[&str]) -> PathBuf {
    let directory = build_directory();
    let profile = match directory.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--quiet", "--profile", profile]).args(which);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    // What cargo tells this process of its package: build scripts that ask for it would run again for nothing.
    for (name, _) in std::env::vars_os() {
        let about_package = |name: &str| ABOUT_PACKAGE.iter().any(|start| name.starts_with(start));
        if name.to_str().is_some_and(about_package) {
            command.env_remove(name);
        }
    }
    let status = command.status().expect("run cargo");
    assert!(status.success(), "cargo does not build {which:?}");
    directory
}
