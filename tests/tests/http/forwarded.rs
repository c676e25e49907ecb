//! The admin port of a node that does not lead: what only the leader can do is passed on to it.

use std::time::Duration;

use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::{Cluster, ServerOptions, eventually};
use serde_json::json;

use super::client::{PATIENCE, await_message, done, get, id, post, publish, refused, take};
use super::openapi::Described;

/// A change of leaders takes a second or two; machines stand still at times.
const FAILOVER: Duration = Duration::from_secs(60);

/// One cluster for all of it: starting one takes longer than asking.
#[test]
fn a_follower_serves_queues_by_asking_the_leader() {
    let mut cluster = Cluster::start_with(3, &ServerOptions::memory());
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let (ahead, admin) = (cluster.node(leader).admin(), cluster.node(follower).admin());

    let first = publish(admin, &json!({"topic": "q", "payload": {"a": 1}, "priority": 3}));
    let taken = take(admin, "q").unwrap();
    assert_eq!((id(&taken), &taken["payload"]), (first.as_str(), &json!({"a": 1})));
    // The lease is with the leader, whichever node is asked.
    assert_eq!(take(ahead, "q"), None);
    assert_eq!(done(&get(ahead, "/stats"))["PendingCount"], 1);
    done(&post(admin, "/nack", &json!({"id": first, "delay": 0})));
    let again = await_message(admin, "q");
    assert_eq!(again["retry"], 1);
    done(&post(admin, "/nack", &json!({"id": first, "requeue": false})));
    let redriven = done(&post(admin, "/dead-letters/redrive", &json!({"queue": "q"})));
    assert_eq!(redriven["redriven_count"], 1);
    let taken = take(admin, "q").unwrap();
    done(&post(admin, "/ack", &json!({"id": id(&taken)})));
    assert_eq!(refused(&post(admin, "/ack", &json!({"id": id(&taken)}))).0, 404);
    for (path, status) in [("/queues/purge", 200), ("/dead-letters/purge", 200)] {
        assert_eq!(post(admin, path, &json!({"queue": "q"})).status, status, "{path}");
    }

    let waiting = std::thread::spawn(move || get(admin, "/consume?topic=later&wait=60s"));
    eventually(PATIENCE, "the leader has a consumer", || {
        let queues = done(&get(ahead, "/queues?prefix=later"));
        (queues["queues"][0]["consumers"] == 1).then_some(())
    });
    let published = publish(ahead, &json!({"topic": "later"}));
    assert_eq!(done(&waiting.join().unwrap())["id"], published.as_str());

    followers_answer_what_they_know(&cluster, leader, follower);
    answers_are_as_the_document_says(&cluster, follower);
    a_new_leader_goes_on(&mut cluster, leader);
    without_a_majority_nothing_is_done_and_it_is_said(&mut cluster);
}

fn followers_answer_what_they_know(cluster: &Cluster, leader: usize, follower: usize) {
    let admin = cluster.node(follower).admin();
    publish(cluster.node(leader).admin(), &json!({"topic": "seen", "payload": 7}));
    let listed = done(&get(admin, "/queues?prefix=seen&linearizable=true"));
    assert_eq!(
        (&listed["queues"][0]["name"], &listed["queues"][0]["ready"]),
        (&json!("seen"), &json!(1))
    );
    let peeked = done(&get(admin, "/queues/peek?queue=seen&linearizable=true"));
    assert_eq!(peeked["messages"][0]["payload"], 7);
    let overview = done(&get(admin, "/overview?linearizable=true"));
    assert_eq!(
        (&overview["health"], &overview["cluster"]["enabled"]),
        (&json!("ok"), &json!(true))
    );
    assert_eq!(overview["cluster"], done(&get(admin, "/cluster/status")));
    assert_eq!(overview["cluster"]["cluster"]["leader_id"], cluster.node(leader).name());
}

fn answers_are_as_the_document_says(cluster: &Cluster, follower: usize) {
    let mut api = Described::new(cluster.node(follower).admin());
    for path in ["/readyz", "/stats", "/overview", "/cluster/status", "/metrics"] {
        api.get(path);
    }
    api.post("/publish", &json!({"topic": "described"}));
    api.get("/consume?topic=described");
    api.ask("GET", "/consume?topic=described", None, 204);
    let node = cluster.node(follower);
    let refresh = json!({"node_id": node.name(), "addr": node.raft().to_string(), "refresh": true});
    api.post("/cluster/join", &refresh);
    api.ask("POST", "/cluster/leave", Some(&json!({"node_id": "stranger"})), 500);
    api.ask("POST", "/cluster/transfer", Some(&json!({"group": "none"})), 404);
    api.post("/cluster/transfer", &json!({"group": "metadata"}));
}

fn a_new_leader_goes_on(cluster: &mut Cluster, leader: usize) {
    let id = publish(cluster.node(leader).admin(), &json!({"topic": "kept", "payload": 1}));
    cluster.kill(leader);
    let follower = cluster.follower();
    let admin = cluster.node(follower).admin();
    let taken = eventually(FAILOVER, "the new leader is found", || {
        let response = get(admin, "/consume?topic=kept");
        if response.status == 503 {
            assert!(response.header("retry-after").is_some());
        }
        (response.status == 200).then(|| response.json())
    });
    assert_eq!(taken["id"], id.as_str());
    let mut binary = BinaryClient::connect(cluster.node(cluster.leader()).messaging());
    binary.ack(&id).ok();
}

fn without_a_majority_nothing_is_done_and_it_is_said(cluster: &mut Cluster) {
    let (leader, last) = (cluster.leader(), cluster.follower());
    cluster.kill(leader);
    let admin = cluster.node(last).admin();
    eventually(FAILOVER, "nobody is known to lead", || {
        let overview = get(admin, "/overview");
        (done(&overview)["health"] == "no_leader").then_some(())
    });
    let nobody = json!({"error": "not leader", "leader": "", "leader_id": ""});
    for response in [
        post(admin, "/publish", &json!({"topic": "q"})),
        get(admin, "/consume?topic=q"),
        post(admin, "/ack", &json!({"id": "0".repeat(32)})),
        post(admin, "/nack", &json!({"id": "0".repeat(32)})),
        post(admin, "/queues/purge", &json!({"queue": "q"})),
        post(admin, "/dead-letters/redrive", &json!({"queue": "q"})),
        post(admin, "/publish/topic", &json!({"topic": "t"})),
    ] {
        assert_eq!((response.status, response.json()), (503, nobody.clone()));
        assert!(response.header("retry-after").is_some());
    }
    let current = get(admin, "/queues?linearizable=true");
    assert_eq!((current.status, current.header("retry-after")), (503, Some("1")));
    // What it has, it shows.
    assert_eq!(done(&get(admin, "/queues?prefix=kept"))["queues"][0]["name"], "kept");
    assert_eq!(get(admin, "/readyz").status, 503);
}
