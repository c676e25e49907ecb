//! Documented keys of features that this version does not have.
//!
//! Configuration files written for other versions carry them. A file may keep them as long as they switch nothing on:
//! the section says `enabled: false`, or the value is the documented default.

use serde_json::Value;

use super::kind::Given;

/// The keys of one feature.
pub(super) struct Feature {
    /// In a sentence: "… is not available in this version".
    pub(super) name: &'static str,
    /// Full name of the key that switches the section on; one of its keys, or one that this version has.
    pub(super) switch: Option<&'static str>,
    pub(super) keys: &'static [Key],
}

/// A key, the value that leaves it off as JSON text, and its variable.
pub(super) type Key = (&'static str, &'static str, Option<&'static str>);

impl Feature {
    /// Whether the value, whatever else is set, leaves the feature off.
    pub(super) fn is_off(key: Key, given: &Given) -> bool {
        let (_, off, _) = key;
        match given {
            Given::Json(value) => value.is_null() || serde_json::from_str::<Value>(off).is_ok_and(|off| *value == off),
            Given::Text(_) if off == "false" => given.boolean() == Some(false),
            Given::Text(text) => text == off.trim_matches('"'),
        }
    }

    /// What to write instead of a value that was refused.
    pub(super) fn remedy(&self, key: Key) -> String {
        // Nobody is told to give up a section that this version has.
        let switch = self
            .switch
            .filter(|switch| self.keys.iter().any(|key| key.0 == *switch));
        match switch {
            Some(switch) if switch != key.0 => format!("remove the key, or set {switch} to false"),
            _ => format!("remove the key, or set it to {}", key.1),
        }
    }
}

pub(super) static FEATURES: &[Feature] = &[
    Feature {
        name: "a gRPC port of its own (gRPC shares the messaging port)",
        switch: None,
        keys: &[("server.grpc_port", "0", Some("BOLTQ_GRPC_PORT"))],
    },
    Feature {
        name: "a bound on the messages of a queue (a backlog needs disk, not memory)",
        switch: None,
        keys: &[("queue.capacity", "1048576", None)],
    },
    Feature {
        name: "a directory for Raft alone (everything is under storage.data_dir)",
        switch: Some("cluster.enabled"),
        keys: &[("cluster.raft_dir", r#""./data/raft""#, Some("BOLTQ_RAFT_DIR"))],
    },
    Feature {
        name: "a fixed list of peers (use cluster.seeds: a node that is let in learns who else is there)",
        switch: Some("cluster.enabled"),
        keys: &[("cluster.peers", "[]", Some("BOLTQ_CLUSTER_PEERS"))],
    },
    Feature {
        name: "a second Raft port (all groups share cluster.raft_addr)",
        switch: Some("cluster.enabled"),
        keys: &[("cluster.meta_raft_addr", r#""""#, Some("BOLTQ_META_RAFT_ADDR"))],
    },
    Feature {
        name: "a choice whether queues are replicated (in a cluster they are)",
        switch: Some("cluster.enabled"),
        keys: &[("cluster.queue_plane", "false", Some("BOLTQ_QUEUE_PLANE"))],
    },
    Feature {
        name: "placement of groups on some of the nodes (every voter has all)",
        switch: Some("cluster.enabled"),
        keys: &[
            ("cluster.rebalance", "false", Some("BOLTQ_REBALANCE")),
            ("cluster.replication_factor", "3", Some("BOLTQ_REPLICATION_FACTOR")),
            ("cluster.max_concurrent_moves", "4", None),
        ],
    },
    Feature {
        name: "a session of a node (that it is gone shows within cluster.election_timeout)",
        switch: Some("cluster.enabled"),
        keys: &[(
            "cluster.session_timeout_seconds",
            "15",
            Some("BOLTQ_SESSION_TIMEOUT_SECONDS"),
        )],
    },
    Feature {
        name: "another layout or durability of the log for messaging (it has what storage.* says)",
        switch: None,
        keys: &[
            ("messaging.stream.segment_bytes", "268435456", None),
            ("messaging.stream.index_interval", "4096", None),
            (
                "messaging.stream.sync_on_append",
                "null",
                Some("BOLTQ_STREAM_SYNC_ON_APPEND"),
            ),
        ],
    },
    Feature {
        name: "identity by token",
        switch: Some("messaging.identity.enabled"),
        keys: &[
            ("messaging.identity.enabled", "false", Some("BOLTQ_IDENTITY_ENABLED")),
            ("messaging.identity.keys", "[]", Some("BOLTQ_IDENTITY_KEY")),
            ("messaging.identity.issuer", r#""""#, Some("BOLTQ_IDENTITY_ISSUER")),
            ("messaging.identity.leeway", r#""60s""#, None),
            (
                "messaging.identity.allow_anonymous",
                "true",
                Some("BOLTQ_IDENTITY_ALLOW_ANONYMOUS"),
            ),
            ("messaging.identity.policy", "null", None),
            ("messaging.identity.membership_cache_ttl", r#""30s""#, None),
        ],
    },
    Feature {
        name: "the gateway",
        switch: Some("messaging.gateway.enabled"),
        keys: &[
            ("messaging.gateway.enabled", "false", Some("BOLTQ_GATEWAY_ENABLED")),
            ("messaging.gateway.path", r#""/ws""#, Some("BOLTQ_GATEWAY_PATH")),
            ("messaging.gateway.port", "0", Some("BOLTQ_GATEWAY_PORT")),
            (
                "messaging.gateway.resume_window",
                r#""5m""#,
                Some("BOLTQ_GATEWAY_RESUME_WINDOW"),
            ),
            ("messaging.gateway.pong_timeout", r#""90s""#, None),
            ("messaging.gateway.max_subscriptions", "200", None),
            ("messaging.gateway.send_buffer", "256", None),
            ("messaging.gateway.read_limit", "1048576", None),
            ("messaging.gateway.history_limit", "200", None),
            (
                "messaging.gateway.allowed_origins",
                "[]",
                Some("BOLTQ_GATEWAY_ALLOWED_ORIGINS"),
            ),
            ("messaging.gateway.tls", r#""off""#, None),
        ],
    },
    Feature {
        name: "presence",
        switch: None,
        keys: &[
            ("messaging.presence.ttl", r#""90s""#, Some("BOLTQ_PRESENCE_TTL")),
            ("messaging.presence.sweep_interval", r#""15s""#, None),
            ("messaging.presence.region", r#""""#, Some("BOLTQ_PRESENCE_REGION")),
        ],
    },
    Feature {
        name: "chat",
        switch: None,
        keys: &[
            (
                "messaging.chat.fanout_on_write_limit",
                "256",
                Some("BOLTQ_FANOUT_ON_WRITE_LIMIT"),
            ),
            ("messaging.chat.conversation_partitions", "16", None),
            ("messaging.chat.inbox_partitions", "1", None),
            ("messaging.chat.membership_url", r#""""#, Some("BOLTQ_MEMBERSHIP_URL")),
            ("messaging.chat.membership_timeout", r#""3s""#, None),
            (
                "messaging.chat.membership_auth_header",
                r#""""#,
                Some("BOLTQ_MEMBERSHIP_AUTH_HEADER"),
            ),
        ],
    },
    Feature {
        name: "offline push",
        switch: Some("messaging.push.enabled"),
        keys: &[
            ("messaging.push.enabled", "false", Some("BOLTQ_PUSH_ENABLED")),
            ("messaging.push.webhook_url", r#""""#, Some("BOLTQ_PUSH_WEBHOOK_URL")),
            ("messaging.push.auth_header", r#""""#, Some("BOLTQ_PUSH_AUTH_HEADER")),
            ("messaging.push.timeout", r#""10s""#, None),
            ("messaging.push.max_attempts", "5", None),
            ("messaging.push.grace_delay", r#""3s""#, Some("BOLTQ_PUSH_GRACE_DELAY")),
            ("messaging.push.scan_interval", r#""30s""#, None),
        ],
    },
    Feature {
        name: "recognising repeated messages",
        switch: None,
        keys: &[
            ("messaging.dedup.ttl", r#""10m""#, None),
            ("messaging.dedup.max_entries", "0", None),
        ],
    },
    Feature {
        name: "signals between devices",
        switch: None,
        keys: &[
            ("messaging.signals.rate_per_second", "5", None),
            ("messaging.signals.burst", "20", None),
            ("messaging.signals.max_payload", "4096", None),
            ("messaging.signals.subscriber_buffer", "64", None),
        ],
    },
    Feature {
        name: "replication of messaging",
        switch: Some("messaging.replication.enabled"),
        keys: &[
            (
                "messaging.replication.enabled",
                "false",
                Some("BOLTQ_REPLICATION_ENABLED"),
            ),
            ("messaging.replication.role", r#""""#, Some("BOLTQ_REPLICATION_ROLE")),
            (
                "messaging.replication.listen",
                r#""""#,
                Some("BOLTQ_REPLICATION_LISTEN"),
            ),
            (
                "messaging.replication.leader_addr",
                r#""""#,
                Some("BOLTQ_REPLICATION_LEADER_ADDR"),
            ),
            (
                "messaging.replication.secret",
                r#""""#,
                Some("BOLTQ_REPLICATION_SECRET"),
            ),
            ("messaging.replication.secret_env", r#""""#, None),
            (
                "messaging.replication.min_in_sync",
                "1",
                Some("BOLTQ_REPLICATION_MIN_IN_SYNC"),
            ),
            ("messaging.replication.ack_timeout", r#""5s""#, None),
            ("messaging.replication.max_lag_in_sync", "10000", None),
            ("messaging.replication.topics", "[]", Some("BOLTQ_REPLICATION_TOPICS")),
            (
                "messaging.replication.sync_on_apply",
                "false",
                Some("BOLTQ_REPLICATION_SYNC_ON_APPLY"),
            ),
        ],
    },
];

/// Keys above whose values must not be shown.
pub(super) const SECRETS: [&str; 4] = [
    "messaging.identity.keys",
    "messaging.chat.membership_auth_header",
    "messaging.push.auth_header",
    "messaging.replication.secret",
];

/// Variables that belong to the command line client or to a second spelling of a key above, or mean nothing in this
/// version.
pub(super) const OTHER_VARIABLES: [&str; 7] = [
    "BOLTQ_ADDR",
    "BOLTQ_CA_FILE",
    "BOLTQ_CERT_FILE",
    "BOLTQ_KEY_FILE",
    "BOLTQ_TLS_INSECURE",
    "BOLTQ_TLS_SERVER_NAME",
    "BOLTQ_IDENTITY_KEY_ID",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::ALL;

    #[test]
    fn every_off_value_is_json_and_leaves_its_key_off() {
        for key in FEATURES.iter().flat_map(|feature| feature.keys) {
            let off: Value = serde_json::from_str(key.1).unwrap();
            assert!(Feature::is_off(*key, &Given::Json(off)), "{}", key.0);
        }
    }

    #[test]
    fn every_switch_is_a_key_and_off_by_default() {
        for feature in FEATURES {
            if let Some(switch) = feature.switch {
                let own = feature.keys.iter().find(|key| key.0 == switch);
                let off = own.map(|key| key.1.to_owned());
                let other = ALL.iter().find(|key| key.name() == switch);
                let off = off.or_else(|| other.map(|key| key.default_json().to_string()));
                assert_eq!(off.as_deref(), Some("false"), "{switch}");
            }
        }
    }

    #[test]
    fn every_secret_is_one_of_the_keys() {
        for secret in SECRETS {
            let mut keys = FEATURES.iter().flat_map(|feature| feature.keys);
            assert!(keys.any(|key| key.0 == secret), "{secret}");
        }
    }
}
