//! Something of everything that a broker keeps, put there by one leader and looked for at another.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use boltq_proto::queue::v1::{NackRequest, PublishRequest, PurgeQueueRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::{BinaryClient, Taken, command, status};
use boltq_tests::harness::grpc::{QueueCalls, connect, message};
use boltq_tests::harness::{ServerOptions, eventually, eventually_async};
use bytes::Bytes;
use serde_json::{Value, json};
use tonic::Code;

use super::calls::{Calls, PATIENCE};

const DELAY: Duration = Duration::from_secs(10);
const NANOS: u64 = 1_000_000_000;

/// Messages in every state, and what routes them.
pub(crate) struct Content {
    /// Holds leases as long as it is there.
    holder: BinaryClient,
    /// Of the messages of the queue `work`.
    work: Vec<String>,
    keyed: Bytes,
    delayed_at: Instant,
}

/// The configuration that it is made for.
pub(crate) fn options() -> ServerOptions {
    ServerOptions::disk()
        .set("queue.max_retry", 2)
        .set("queue.retry_backoff", "1ms")
}

fn keyed() -> Message {
    Message {
        idempotency_key: "k".to_owned(),
        ..message("once")
    }
}

/// A node may be elected, and not know yet up to where it can answer.
fn await_answers(leader: &mut BinaryClient) {
    eventually(PATIENCE, "the leader publishes", || {
        let reply = leader.call(command::PUBLISH, r#"{"topic":"any","payload":1}"#);
        (reply.status == status::OK).then_some(())
    });
}

fn take(client: &mut BinaryClient, queue: &str) -> Taken {
    eventually(PATIENCE, "a delivery", || client.consume(queue))
}

fn tell(client: &mut BinaryClient, payload: &Value) {
    client.ask(command::PUBLISH_TOPIC, &json!({"topic": "t", "payload": payload}));
}

impl Content {
    /// Puts it there.
    pub(crate) async fn put(leader: SocketAddr) -> Self {
        let mut holder = BinaryClient::connect(leader);
        let client = &mut holder;
        await_answers(client);
        for (name, priority) in [("A", 1), ("B", 9), ("C", 1)] {
            client.publish_with(&json!({"topic": "order", "payload": name, "priority": priority}));
        }
        client.publish("tried", &json!("twice"));
        for _ in 0..2 {
            let taken = take(client, "tried");
            client.nack(&taken.id).ok();
        }
        client.publish_with(&json!({"topic": "times", "payload": "over", "ttl": NANOS}));
        client.publish_with(&json!({"topic": "times", "payload": "stays", "ttl": 3_600 * NANOS}));
        let work = ["first", "second", "third"].map(|name| client.publish("work", &json!(name)));
        for id in &work {
            assert_eq!(client.consume("work").unwrap().id, *id);
        }
        client.ack(&work[1]).ok();

        client.declare("e", "topic");
        client.bind("e", "routed", "a.*.c");
        client.bind("e", "routed", "a.#");
        client.bind("e", "unbound", "a.#");
        client.ask(
            command::UNBIND_QUEUE,
            &json!({"exchange": "e", "queue": "unbound", "binding_key": "a.#"}),
        );
        let mut subscriber = BinaryClient::connect(leader);
        subscriber.subscribe("t", "s", true);
        tell(client, &json!("received"));
        assert_eq!(subscriber.pushed()["payload"], "received");
        eventually(PATIENCE, "what was pushed is done", || {
            (client.stats()["Queues"]["t:s"] == 0 && client.stats()["PendingCount"] == 2).then_some(())
        });
        drop(subscriber);
        eventually(PATIENCE, "nobody listens", || {
            (client.stats()["Topics"] == json!({})).then_some(())
        });
        for number in 0..3 {
            tell(client, &json!(number));
        }

        let mut grpc = connect(leader).await;
        grpc.put("poison", message("dead")).await;
        let taken = grpc.take_one("poison").await;
        let dead = NackRequest {
            delivery_tokens: vec![taken.delivery_token],
            dead_letter: true,
            ..NackRequest::default()
        };
        assert_eq!(grpc.nack(dead).await.unwrap().into_inner().settled, 1);
        grpc.put("purged", message("gone")).await;
        let purge = PurgeQueueRequest {
            queue: "purged".to_owned(),
        };
        assert_eq!(grpc.purge_queue(purge).await.unwrap().into_inner().purged, 1);
        let keyed = grpc.put("keyed", keyed()).await;
        let taken = grpc.take("keyed", 1).await;
        assert_eq!(grpc.done(&taken).await, 1);
        let delayed_at = Instant::now();
        let delay = DELAY.as_nanos() as u64;
        client.publish_with(&json!({"topic": "later", "payload": "soon", "delay": delay}));
        client.publish_with(&json!({"topic": "later", "payload": "much later", "delay": 3_600 * NANOS}));
        Self {
            holder,
            work: work.to_vec(),
            keyed,
            delayed_at,
        }
    }

    /// It is all there, at a node that has begun to lead, and nothing of what was done comes again.
    pub(crate) async fn check(self, leader: SocketAddr) {
        let mut binary = BinaryClient::connect(leader);
        let client = &mut binary;
        await_answers(client);
        let due = self.delayed_at.elapsed() >= DELAY;
        assert!(due || client.stats()["DelayedCount"] == 2, "{}", client.stats());
        for name in ["B", "A", "C"] {
            let taken = client.consume("order").unwrap();
            assert_eq!((taken.payload(), taken.retry()), (&json!(name), 0));
            client.ack(&taken.id).ok();
        }
        // Two leases ended with their leader; what was acknowledged stays away.
        for index in [0, 2] {
            let taken = client.consume("work").unwrap();
            assert_eq!(taken.id, self.work[index]);
            client.ack(&taken.id).ok();
        }
        assert!(client.consume("work").is_none());
        let tried = client.consume("tried").unwrap();
        assert_eq!(tried.retry(), 2);
        client.nack(&tried.id).ok();
        let dead = take(client, "tried_dead_letter");
        assert_eq!(
            (&dead.id, &dead.body["headers"]["x-death-attempts"]),
            (&tried.id, &json!("3"))
        );
        client.ack(&dead.id).ok();
        let dead = client.consume("poison_dead_letter").unwrap();
        assert_eq!(dead.body["headers"]["x-death-reason"], "rejected");
        client.ack(&dead.id).ok();

        let route = json!({"exchange": "e", "routing_key": "a.b.c", "payload": "copy"});
        assert_eq!(client.ask(command::PUBLISH_EXCHANGE, &route)["routed"], 1);
        let taken = client.consume("routed").unwrap();
        assert_eq!(taken.payload(), "copy");
        client.ack(&taken.id).ok();
        assert!(client.consume("routed").is_none() && client.consume("unbound").is_none());
        let mut subscriber = BinaryClient::connect(leader);
        subscriber.subscribe("t", "s", true);
        tell(client, &json!(3));
        for number in 0..4 {
            assert_eq!(subscriber.pushed()["payload"], number);
        }

        assert!(client.consume("purged").is_none());
        self.check_key(leader).await;
        self.check_times(client);
        eventually(PATIENCE, "what was pushed is done", || {
            (client.stats()["Queues"]["t:s"] == 0 && client.stats()["PendingCount"] == 0).then_some(())
        });
        drop(self.holder);
    }

    /// A publish that is repeated gets the first answer.
    async fn check_key(&self, leader: SocketAddr) {
        let again = eventually_async(PATIENCE, "an answer", || async {
            let request = PublishRequest {
                queue: "keyed".to_owned(),
                message: Some(keyed()),
            };
            match connect(leader).await.publish(request).await {
                Err(status) if status.code() == Code::Unavailable => None,
                answer => Some(answer.unwrap().into_inner().message_id),
            }
        });
        assert_eq!(again.await, self.keyed);
        assert_eq!(connect(leader).await.look("keyed").await.ready, 0);
    }

    /// Not before its time, and not after its end.
    fn check_times(&self, client: &mut BinaryClient) {
        let soon = take(client, "later");
        assert!(
            self.delayed_at.elapsed() >= DELAY,
            "early: {:?}",
            self.delayed_at.elapsed()
        );
        assert_eq!(soon.payload(), "soon");
        client.ack(&soon.id).ok();
        assert!(client.consume("later").is_none());
        let stays = client.consume("times").unwrap();
        assert_eq!(stays.payload(), "stays");
        client.ack(&stays.id).ok();
        assert!(client.consume("times").is_none());
    }
}
