use std::fs;
use std::path::Path;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::support::{Node, why_unreachable};
use crate::peer::{PeerConfig, PeerError, PeerTls, Peers};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A config whose certificate `authority` has signed for `host`, and which trusts `trusted`.
fn config(
    dir: &Path,
    host: &str,
    authority: &CertifiedIssuer<'static, KeyPair>,
    trusted: &CertifiedIssuer<'static, KeyPair>,
) -> PeerConfig {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
    let cert = params.signed_by(&key, authority).unwrap();
    let dir = tempfile::tempdir_in(dir).unwrap().keep();
    let files = PeerTls {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
        ca: dir.join("ca.pem"),
    };
    fs::write(&files.cert, cert.pem()).unwrap();
    fs::write(&files.key, key.serialize_pem()).unwrap();
    fs::write(&files.ca, trusted.pem()).unwrap();
    PeerConfig {
        tls: Some(files),
        ..PeerConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_one_authority_speak_and_all_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (authority(), authority());
    let node = |id, config| async move { Node::echo(id, config).await };
    let one = node(1, config(dir.path(), "127.0.0.1", &ours, &ours)).await;
    let two = node(2, config(dir.path(), "127.0.0.1", &ours, &ours)).await;
    assert_eq!(one.call(&two.peer, b"x").await, Ok(Bytes::from_static(b"x")));
    assert_eq!(two.call(&one.peer, b"x").await, Ok(Bytes::from_static(b"x")));

    let foreign = node(3, config(dir.path(), "127.0.0.1", &theirs, &theirs)).await;
    let intruder = node(4, config(dir.path(), "127.0.0.1", &theirs, &ours)).await;
    let plain = node(5, PeerConfig::default()).await;
    for other in [&foreign, &intruder, &plain] {
        why_unreachable(other.call(&two.peer, b"x").await);
        why_unreachable(two.call(&other.peer, b"x").await);
    }
    let elsewhere = node(6, config(dir.path(), "10.9.8.7", &ours, &ours)).await;
    let why = why_unreachable(two.call(&elsewhere.peer, b"x").await);
    assert!(why.contains("TLS"), "{why}");
    assert_eq!(two.peers.metrics().requests.get(), 1);
}

#[tokio::test]
async fn files_that_are_of_no_use_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let ours = authority();
    for (spoil, text) in [(0, ""), (1, "no PEM"), (2, "")] {
        let config = config(dir.path(), "127.0.0.1", &ours, &ours);
        let files = config.tls.clone().unwrap();
        let path = [files.cert, files.key, files.ca][spoil].clone();
        fs::write(&path, text).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let info = std::sync::Arc::new(|| super::support::info(1, 7));
        let error = Peers::start(listener, config, info).await.unwrap_err();
        assert!(matches!(error, PeerError::Tls(_)), "{error}");
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    }
}
