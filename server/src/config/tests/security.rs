//! Keys with roles, and TLS.

use super::*;

const HASH: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn keys(entries: &str) -> Result<Loaded, ConfigError> {
    let text = format!(r#"{{"security":{{"keys":{entries}}}}}"#);
    load_with(&text, &[], Flags::default())
}

#[test]
fn a_key_has_an_id_a_hash_and_one_role_or_several() {
    let entries = format!(
        r#"[{{"id":"shop","hash":"{HASH}","role":"producer"}},
            {{"id":"mail","hash":"{}","role":["producer","consumer"]}}]"#,
        HASH.replace("ad", "ae")
    );
    let keys = keys(&entries).unwrap().config.security.keys;
    let shown: Vec<_> = keys
        .iter()
        .map(|key| (key.id.as_str(), key.roles.to_string()))
        .collect();
    let wanted = [
        ("shop", "producer".to_owned()),
        ("mail", "producer and consumer".to_owned()),
    ];
    assert_eq!(shown, wanted);
}

#[test]
fn a_key_that_cannot_be_used_is_named_with_what_to_write() {
    let entry = |id: &str, hash: &str, role: &str| format!(r#"{{"id":{id},"hash":{hash},"role":{role}}}"#);
    let (id, hash, role) = (r#""shop""#, format!(r#""{HASH}""#), r#""producer""#);
    let good = entry(id, &hash, role);
    for (entries, wanted) in [
        (
            format!("[{}]", entry(r#""""#, &hash, role)),
            "security.keys, entry 1: id: name is empty",
        ),
        (
            format!("[{}]", entry(id, r#""s3cret""#, role)),
            "the hash of \"shop\" has to be sha256:",
        ),
        (
            // `printf %s "$KEY" | sha256sum`, and no such variable.
            format!(
                "[{}]",
                entry(
                    id,
                    r#""sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855""#,
                    role
                )
            ),
            "the hash of \"shop\" is that of an empty key",
        ),
        (
            format!("[{}]", entry(id, &hash, r#""root""#)),
            "the role of \"shop\" has to be admin, producer, consumer",
        ),
        (
            format!("[{}]", entry(id, &hash, "[]")),
            "the role of \"shop\" has to be",
        ),
        (
            format!("[{}]", entry(id, &hash, "7")),
            "role has to be a text, or a list of texts",
        ),
        (format!(r#"[{{"id":"shop","hash":{hash}}}]"#), "missing field `role`"),
        (
            format!(r#"[{{"id":"a","hash":{hash},"role":{role},"key":"s3cret"}}]"#),
            "unknown field `key`",
        ),
        (
            r#"["s3cret"]"#.to_owned(),
            "security.keys, entry 1: it has to be an object",
        ),
        (
            format!("[{good},{good}]"),
            "security.keys, entry 2: another key has the id \"shop\"",
        ),
        (
            format!("[{good},{}]", entry(r#""b""#, &hash, role)),
            "entry 2: \"b\" has the hash of another key",
        ),
        (r#"{"shop":"s3cret"}"#.to_owned(), "security.keys = (set) (from "),
    ] {
        let error = keys(&entries).unwrap_err().to_string();
        assert!(error.contains(wanted) && !error.contains("s3cret"), "{error}");
    }
}

#[test]
fn hashes_are_not_shown_and_no_keys_are_shown_as_none() {
    let loaded = keys(&format!(r#"[{{"id":"shop","hash":"{HASH}","role":"producer"}}]"#)).unwrap();
    assert!(loaded.in_effect.contains("security.keys = (set)  ("));
    assert!(!loaded.in_effect.contains("ba78") && !format!("{loaded:?}").contains("ba78"));
    let none = keys("[]").unwrap().in_effect;
    assert!(none.contains("security.keys = []  ("), "{none}");
}

#[test]
fn tls_needs_its_files_and_authorities_where_somebody_is_to_be_believed() {
    let tls = |keys: &str| refusal(&format!(r#"{{"server":{{"tls":{{"enabled":true{keys}}}}}}}"#));
    assert!(tls("").contains("TLS needs a certificate"));
    assert!(tls(r#","cert_file":"c""#).contains("TLS needs a private key"));
    let auth = tls(r#","cert_file":"c","key_file":"k","client_auth":"required""#);
    assert_eq!(
        auth,
        "server.tls.client_auth = \"required\" contradicts server.tls.ca_file = \"\": it takes authorities to believe \
         certificates of clients"
    );
    let cluster = refusal(
        r#"{"server":{"tls":{"enabled":true,"cert_file":"c","key_file":"k"}},"cluster":{"enabled":true,"bootstrap":true}}"#,
    );
    assert!(cluster.contains("server.tls.ca_file"), "{cluster}");
    let off = file(r#"{"server":{"tls":{"enabled":false,"cert_file":"c","client_auth":"required"}}}"#);
    assert_eq!(off.unwrap().server.tls, None, "what is switched off needs nothing");
}

#[test]
fn a_cluster_with_nothing_but_hashed_keys_is_told_of_what_nodes_show() {
    let text = format!(
        r#"{{"security":{{"keys":[{{"id":"a","hash":"{HASH}","role":"admin"}}]}},
            "cluster":{{"enabled":true,"bootstrap":true,"secret":"0123456789abcdef"}},"storage":{{"mode":"disk"}}}}"#
    );
    let warnings = load_with(&text, &[], Flags::default()).unwrap().warnings;
    assert!(
        matches!(&warnings[..], [one] if one.starts_with("security.keys without security.api_key")),
        "{warnings:?}"
    );
}

#[test]
fn a_changed_value_is_noticed_and_what_can_change_is_marked() {
    let (before, after) = (
        file_values("{}"),
        file_values(r#"{"log":{"level":"warn"},"storage":{"mode":"disk"}}"#),
    );
    assert_eq!(before.changed(&after), ["log.level", "storage.mode"]);
    let mut between = before;
    between.take("log.level", &after);
    assert_eq!(between.changed(&after), ["storage.mode"]);
    let shown = load(&Flags::default(), []).unwrap().in_effect;
    let marked = shown
        .lines()
        .filter(|line| line.ends_with(" SIGHUP applies it."))
        .count();
    assert_eq!(marked, RELOADABLE.len());
}

fn file_values(text: &str) -> Values {
    load_with(text, &[], Flags::default()).unwrap().values
}
