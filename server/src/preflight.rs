//! What only the machine can say about a configuration: whether its ports and its directory can be had here.
//!
//! For `check-config`, beside a server that may be running: nothing is written, nothing listens, and a port in use is no error.
//! What this machine has to open is an error if it cannot be; whom others have to find, or who is asked for admission, may not
//! be there yet, and is a warning.

use std::fs;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use tokio::net::TcpSocket;

use crate::config::{Config, StorageMode};
use crate::peer::{PeerTls, check_tls};
use crate::tls::TlsStore;

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The server would not start, or could not work.
    pub errors: Vec<String>,
    /// It would, and something may be missing.
    pub warnings: Vec<String>,
}

/// Looks. Blocks while names are looked up.
#[must_use]
pub fn check(config: &Config) -> Findings {
    let mut findings = Findings::default();
    let host = &config.server.host;
    findings.port("server.tcp_port", "server.host", host, config.server.tcp_port);
    findings.port("server.http_port", "server.host", host, config.server.http_port);
    if let Some(Err(error)) = config.server.tls.as_ref().map(TlsStore::check) {
        findings.errors.push(error.to_string());
    }
    if config.storage.mode == StorageMode::Disk {
        findings.directory(&config.storage.data_dir);
    }
    if config.cluster.enabled {
        findings.cluster(config);
    }
    // Two ports of one host that cannot be had say the same.
    findings.errors.dedup();
    findings
}

impl Findings {
    fn cluster(&mut self, config: &Config) {
        let cluster = &config.cluster;
        let raft = "cluster.raft_addr";
        self.port(raft, raft, &cluster.raft_host, cluster.raft_port);
        if let Err(error) = resolve((cluster.advertise_host.as_str(), cluster.raft_port)) {
            self.warnings.push(format!(
                "{:?}, which other nodes and clients are told to dial (cluster.advertise_host), has no address here: {error}",
                cluster.advertise_host
            ));
        }
        for seed in &cluster.seeds {
            if let Err(error) = resolve(seed.as_str()) {
                self.warnings
                    .push(format!("the seed {seed:?} has no address now: {error}"));
            }
        }
        let tls = cluster.tls.as_ref().map(PeerTls::from);
        if let Some(Err(error)) = tls.map(|tls| check_tls(&tls)) {
            self.errors.push(error.to_string());
        }
    }

    /// Whether a port can be opened, as the server would: on the first address of the host that can be used.
    fn port(&mut self, port_key: &str, host_key: &str, host: &str, port: u16) {
        let addresses = match resolve((host, port)) {
            Ok(addresses) => addresses,
            Err(error) => return self.errors.push(format!("{host_key} = {host:?}: no address: {error}")),
        };
        let mut last = None;
        for address in addresses {
            match open(address) {
                Ok(()) => return,
                Err(error) => last = Some((address, error)),
            }
        }
        let Some((address, error)) = last else { return };
        if error.kind() == io::ErrorKind::AddrInUse {
            self.warnings.push(format!(
                "{port_key}: {address} is in use; unless that is this server, it cannot start"
            ));
        } else {
            self.errors
                .push(format!("{port_key}: {address} cannot be opened: {error}"));
        }
    }

    fn directory(&mut self, data_dir: &Path) {
        // As it will be used, whatever the working directory is when somebody reads this.
        let path = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned());
        let writable = |at: &Path| Ok(access(at, Access::WRITE_OK | Access::EXEC_OK)?);
        if let Err(why) = can_be_there(&path, writable) {
            self.errors.push(format!("storage.data_dir = {data_dir:?}: {why}"));
        }
    }
}

/// Whether a directory can be written to, or made. `writable` says whether names can be added to one that exists.
fn can_be_there(path: &Path, writable: impl Fn(&Path) -> io::Result<()>) -> Result<(), String> {
    let (at, metadata) = nearest(path).map_err(|(at, error)| format!("{}: {error}", at.display()))?;
    if !metadata.is_dir() {
        return Err(format!("{} is not a directory", at.display()));
    }
    writable(&at).map_err(|error| match at == path {
        true => format!("cannot be written to: {error}"),
        false => format!("cannot be created in {}: {error}", at.display()),
    })
}

fn resolve(host: impl ToSocketAddrs) -> io::Result<Vec<SocketAddr>> {
    let addresses: Vec<_> = host.to_socket_addrs()?.collect();
    if addresses.is_empty() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(addresses)
}

/// Takes the port for a moment, without listening.
fn open(address: SocketAddr) -> io::Result<()> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)
}

/// The path, or what exists above it.
fn nearest(path: &Path) -> Result<(PathBuf, fs::Metadata), (PathBuf, io::Error)> {
    for at in path.ancestors() {
        match fs::metadata(at) {
            Ok(metadata) => return Ok((at.to_owned(), metadata)),
            // A link that leads nowhere has a name, and no directory can be made under it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(at).is_err() => {}
            Err(error) => return Err((at.to_owned(), error)),
        }
    }
    Err((path.to_owned(), io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Flags, load};

    /// What is found about this configuration, of ports that are free.
    fn found(dir: &tempfile::TempDir, config: &serde_json::Value) -> Findings {
        let path = dir.path().join("boltq.json");
        let mut whole = serde_json::json!({
            "server": {"host": "127.0.0.1", "tcp_port": 0, "http_port": 0},
            "cluster": {"raft_addr": "127.0.0.1:0", "advertise_host": "127.0.0.1", "node_id": "n1", "bootstrap": true}
        });
        for (section, keys) in config.as_object().unwrap() {
            for (key, value) in keys.as_object().unwrap() {
                whole[section][key] = value.clone();
            }
        }
        fs::write(&path, whole.to_string()).unwrap();
        let flags = Flags {
            config: Some(path),
            ..Flags::default()
        };
        check(&load(&flags, []).unwrap().config)
    }

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn data_dir(dir: &tempfile::TempDir, path: &Path) -> Findings {
        let storage = serde_json::json!({"storage": {"mode": "disk", "data_dir": path}});
        found(dir, &storage)
    }

    #[test]
    fn what_is_in_order_has_no_findings_and_leaves_nothing_behind() {
        let dir = dir();
        let path = dir.path().join("a/b/c");
        assert_eq!(data_dir(&dir, &path), Findings::default());
        assert!(!dir.path().join("a").exists());
        assert_eq!(data_dir(&dir, dir.path()), Findings::default());
    }

    #[test]
    fn a_host_that_this_machine_cannot_listen_on_is_an_error() {
        // 192.0.2.0/24 is for documentation, and .invalid never resolves.
        for (host, why) in [("192.0.2.1", "cannot be opened"), ("nowhere.invalid", "no address")] {
            let findings = found(&dir(), &serde_json::json!({"server": {"host": host}}));
            assert!(
                findings.errors[0].contains(host) && findings.errors[0].contains(why),
                "{findings:?}"
            );
            let cluster = serde_json::json!({"cluster": {"enabled": true, "raft_addr": format!("{host}:9100")}});
            let findings = found(&dir(), &cluster);
            assert_eq!(findings.errors.len(), 1, "{findings:?}");
            assert!(findings.errors[0].starts_with("cluster.raft_addr"), "{findings:?}");
        }
    }

    #[test]
    fn a_port_in_use_and_names_that_others_have_to_find_are_warnings() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let findings = found(&dir(), &serde_json::json!({"server": {"tcp_port": port}}));
        assert!(findings.errors.is_empty(), "{findings:?}");
        assert!(findings.warnings[0].starts_with(&format!("server.tcp_port: 127.0.0.1:{port} is in use")));
        let cluster = serde_json::json!({"cluster":
            {"enabled": true, "seeds": ["nowhere.invalid:9090"], "advertise_host": "neither.invalid"}});
        let findings = found(&dir(), &cluster);
        assert!(findings.errors.is_empty(), "{findings:?}");
        assert!(findings.warnings[0].contains("cluster.advertise_host"), "{findings:?}");
        assert!(
            findings.warnings[1].starts_with("the seed \"nowhere.invalid:9090\""),
            "{findings:?}"
        );
    }

    #[test]
    fn a_data_directory_that_cannot_be_there_is_an_error() {
        let dir = dir();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/nonexistent/target", &link).unwrap();
        for path in [
            file.clone(),
            file.join("below"),
            link.join("below"),
            dir.path().join("x".repeat(300)),
        ] {
            let findings = data_dir(&dir, &path);
            assert_eq!(findings.errors.len(), 1, "{path:?}: {findings:?}");
            assert!(findings.errors[0].starts_with("storage.data_dir = "), "{findings:?}");
        }
        // In memory nobody needs one.
        let memory = serde_json::json!({"storage": {"mode": "memory", "data_dir": file}});
        assert_eq!(found(&dir, &memory), Findings::default());
    }

    #[test]
    fn a_directory_without_the_right_to_write_is_an_error() {
        // Those who run the tests may write everywhere.
        let refused = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
        let dir = dir();
        assert_eq!(
            can_be_there(dir.path(), refused),
            Err("cannot be written to: permission denied".to_owned())
        );
        let why = can_be_there(&dir.path().join("a/b"), refused);
        let expected = format!("cannot be created in {}: permission denied", dir.path().display());
        assert_eq!(why, Err(expected));
    }
}
