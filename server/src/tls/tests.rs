//! Files that change, and what is taken of them.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use super::{Looked, TlsStore};
use crate::config::{ClientAuth, ServerTls};

struct Files {
    dir: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Files {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let files = Self {
            dir: tempfile::tempdir().unwrap(),
            authority,
        };
        files.write("ca.pem", &files.authority.pem());
        files.issue(2040);
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.dir.path().join(name), text).unwrap();
    }

    /// A new pair, of which the certificate ends with this year.
    fn pair(&self, year: i32) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn issue(&self, year: i32) {
        let (certificate, key) = self.pair(year);
        self.write("cert.pem", &certificate);
        self.write("key.pem", &key);
    }

    fn config(&self) -> ServerTls {
        let path = |name: &str| self.dir.path().join(name);
        ServerTls {
            cert_file: path("cert.pem"),
            key_file: path("key.pem"),
            ca_file: Some(path("ca.pem")),
            client_auth: ClientAuth::None,
        }
    }
}

/// The first of January of this year.
fn year(year: u64) -> Option<SystemTime> {
    let days = (1970..year)
        .map(|year| if year.is_multiple_of(4) { 366 } else { 365 })
        .sum::<u64>();
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(days * 24 * 3_600))
}

#[test]
fn files_that_have_not_changed_are_the_same_whatever_their_dates_are() {
    let files = Files::new();
    let store = TlsStore::load(&files.config()).unwrap();
    assert_eq!((store.look(), store.expires()), (Looked::Same, year(2040)));
    let text = fs::read_to_string(files.dir.path().join("cert.pem")).unwrap();
    files.write("cert.pem", &text);
    assert_eq!(store.look(), Looked::Same);
}

#[test]
fn a_new_pair_takes_the_place_of_the_old_one() {
    let files = Files::new();
    let store = TlsStore::load(&files.config()).unwrap();
    files.issue(2041);
    assert_eq!((store.look(), store.expires()), (Looked::Replaced, year(2041)));
    assert_eq!(store.look(), Looked::Same);
}

#[test]
fn a_half_written_pair_changes_nothing_until_it_is_whole() {
    let files = Files::new();
    let store = TlsStore::load(&files.config()).unwrap();
    let (certificate, key) = files.pair(2041);
    for half in ["", &certificate[..certificate.len() / 2], &certificate] {
        files.write("cert.pem", half);
        assert_eq!((store.look(), store.expires()), (Looked::Refused, year(2040)));
        assert!(store.is_refusing());
    }
    files.write("key.pem", &key);
    assert_eq!((store.look(), store.expires()), (Looked::Replaced, year(2041)));
    assert!(!store.is_refusing());
}

#[test]
fn a_certificate_that_has_ended_takes_the_place_of_none_that_has_not() {
    let files = Files::new();
    let store = TlsStore::load(&files.config()).unwrap();
    files.issue(2020);
    assert_eq!((store.look(), store.expires()), (Looked::Refused, year(2040)));
    assert!(store.is_refusing());
    assert_eq!(store.replace(&files.config()), Looked::Refused);
    files.issue(2041);
    assert_eq!((store.look(), store.expires()), (Looked::Replaced, year(2041)));
    assert!(!store.is_refusing());
    // Nothing is lost where the one in use has ended.
    files.issue(2020);
    let store = TlsStore::load(&files.config()).unwrap();
    files.issue(2021);
    assert_eq!((store.look(), store.expires()), (Looked::Replaced, year(2021)));
}

#[test]
fn other_paths_are_taken_only_if_they_can_be_used() {
    let (files, others) = (Files::new(), Files::new());
    let store = TlsStore::load(&files.config()).unwrap();
    let missing = ServerTls {
        key_file: Path::new("/nowhere").to_owned(),
        ..others.config()
    };
    assert_eq!((store.replace(&missing), store.look()), (Looked::Refused, Looked::Same));
    others.issue(2042);
    assert_eq!(
        (store.replace(&others.config()), store.look()),
        (Looked::Replaced, Looked::Same)
    );
    assert_eq!(store.expires(), year(2042));
    let required = ServerTls {
        client_auth: ClientAuth::Required,
        ..others.config()
    };
    assert_eq!(
        (store.replace(&required), store.look()),
        (Looked::Replaced, Looked::Same)
    );
}

#[test]
fn files_that_are_none_are_named_with_what_is_wrong() {
    let files = Files::new();
    let error = |files: &ServerTls| TlsStore::check(files).unwrap_err().to_string();
    let path = |name: &str| format!("{:?}", files.dir.path().join(name));
    let (_, other_key) = files.pair(2041);
    let config = files.config();
    let missing = error(&ServerTls {
        ca_file: Some("/nowhere/ca.pem".into()),
        ..config.clone()
    });
    assert!(
        missing.starts_with("server.tls: authorities \"/nowhere/ca.pem\": No such file"),
        "{missing}"
    );
    let key = fs::read_to_string(&config.key_file).unwrap();
    files.write("key.pem", &other_key);
    let mismatch = error(&config);
    assert!(
        mismatch.starts_with(&format!("server.tls: certificate {}: ", path("cert.pem"))),
        "{mismatch}"
    );
    files.write("key.pem", "no key");
    assert!(error(&config).starts_with(&format!("server.tls: key {}: ", path("key.pem"))));
    files.write("key.pem", &key);
    files.write("cert.pem", &key);
    assert!(error(&config).ends_with("no certificate in it"));
    files.write("cert.pem", &" ".repeat((4 << 20) + 1));
    assert!(error(&config).ends_with("it has more than 4194304 bytes"));
    // To open a pipe waits for who writes into it, and this device has no end.
    for no_file in ["/dev/zero", "/dev/stdin"] {
        let endless = ServerTls {
            cert_file: no_file.into(),
            ..config.clone()
        };
        if !fs::metadata(no_file).is_ok_and(|metadata| metadata.is_file()) {
            assert!(error(&endless).ends_with("it is no regular file"));
        }
    }
}
