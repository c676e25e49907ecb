//! An acknowledgement means the same whatever it is for, and what was acknowledged stays together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::exchange::v1::{ListBindingsRequest, ListRequest};
use boltq_proto::topic::v1::ListSubscriptionsRequest;
use boltq_proto::topic::v1::topic_service_client::TopicServiceClient;
use boltq_tests::harness::binary::{BinaryClient, command, frame, status};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect};
use boltq_tests::harness::{Random, Server, ServerOptions};
use serde_json::{Value, json};

use super::calls::Calls;

/// Every command that is answered when it is stored, with and without confirms: none is answered from memory.
#[test]
fn no_command_is_answered_with_ok_when_what_it_says_cannot_be_stored() {
    let commands = [
        (command::PUBLISH, json!({"topic": "q", "payload": 1})),
        (command::PUBLISH_TOPIC, json!({"topic": "t", "payload": 1})),
        (command::PUBLISH_EXCHANGE, json!({"exchange": "e", "payload": 1})),
        (command::ACK, json!({})),
        (command::NACK, json!({})),
    ];
    for (code, mut body) in commands {
        for confirms in [false, true] {
            let server = Server::start(&ServerOptions::disk());
            let mut client = BinaryClient::connect(server.messaging());
            client.declare("e", "fanout");
            client.bind("e", "q", "");
            BinaryClient::connect(server.messaging()).subscribe("t", "s", true);
            let id = client.publish("held", &json!(1));
            client.consume("held").unwrap();
            if confirms {
                client.call(command::CONFIRM_SELECT, "").ok();
            }
            if [command::ACK, command::NACK].contains(&code) {
                body = json!({"id": id});
            }
            std::fs::remove_dir_all(server.directory().data()).unwrap();
            // Refused, or the connection ends.
            if let Ok(reply) = client.try_call(code, &body.to_string()) {
                assert_ne!(reply.status, status::OK, "{code:#04x} {}", reply.text());
            }
        }
    }
}

const COPIES: usize = 4;

/// Takes and settles everything; numbers and ids.
async fn drain(address: SocketAddr, queue: &str) -> Vec<(u64, String)> {
    let mut client = connect(address).await;
    let mut all = Vec::new();
    loop {
        let deliveries = client.take(queue, 1_000).await;
        if deliveries.is_empty() {
            assert_eq!(client.look(queue).await.ready, 0);
            return all;
        }
        assert_eq!(client.done(&deliveries).await as usize, deliveries.len());
        all.extend(deliveries.iter().map(|delivery| {
            let number = std::str::from_utf8(&delivery.payload).unwrap().parse().unwrap();
            let id = delivery.message_id.iter().map(|byte| format!("{byte:02x}"));
            (number, id.collect::<String>())
        }));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_are_in_all_queues_or_in_none_and_no_id_is_given_twice_over_kills() {
    let mut random = Random::from_environment("copies_are_in_all_queues");
    let mut server = Server::start(&ServerOptions::disk().set("storage.wal_file_bytes", 65_536));
    let mut client = BinaryClient::connect(server.messaging());
    let queues: Vec<String> = (0..COPIES).map(|number| format!("q{number}")).collect();
    client.declare("f", "fanout");
    queues.iter().for_each(|queue| client.bind("f", queue, ""));
    let (mut next, mut ids, mut all) = (0_u64, BTreeSet::new(), 0);
    for _ in 0..6 {
        let mut client = BinaryClient::connect(server.messaging());
        let patience = Duration::from_millis(random.within(5..80));
        let publishing = std::thread::spawn(move || {
            let mut answered = BTreeMap::new();
            let mut sent = next;
            loop {
                let requests = (sent..sent + 16).map(|number| {
                    let body = json!({"exchange": "f", "payload": number}).to_string();
                    frame(command::PUBLISH_EXCHANGE, body.as_bytes())
                });
                if client.send_bytes(&requests.collect::<Vec<_>>().concat()).is_err() {
                    return (answered, sent + 16);
                }
                for number in sent..sent + 16 {
                    let Ok(reply) = client.receive() else {
                        return (answered, sent + 16);
                    };
                    let reply = reply.ok();
                    assert_eq!(reply["routed"], COPIES);
                    answered.insert(number, reply["id"].as_str().unwrap().to_owned());
                }
                sent += 16;
            }
        });
        tokio::time::sleep(patience).await;
        server.kill();
        let (answered, end) = publishing.join().expect("a publisher");
        server.restart();
        let mut copies = Vec::new();
        for queue in &queues {
            let (numbers, own): (Vec<_>, Vec<_>) = drain(server.messaging(), queue).await.into_iter().unzip();
            assert!(numbers.is_sorted_by(|one, other| one < other), "{queue}: {numbers:?}");
            for id in own {
                assert!(ids.insert(id.clone()), "{id} was given twice");
            }
            copies.push(numbers);
        }
        assert!(copies.windows(2).all(|pair| pair[0] == pair[1]), "{copies:?}");
        assert!(answered.keys().all(|number| copies[0].contains(number)));
        for id in answered.into_values() {
            assert!(ids.insert(id.clone()), "{id} was given twice");
        }
        all += copies[0].len();
        next = end;
    }
    assert!(all > 100, "only {all} were published");
}

/// What there is, by kind and name.
type Declared = BTreeSet<(&'static str, String)>;

/// What was answered; one more may have been carried out without an answer.
fn declare_until_it_ends(address: SocketAddr, round: usize) -> Declared {
    let mut declared = Declared::new();
    let Ok(mut client) = BinaryClient::try_connect(address) else {
        return declared;
    };
    for number in 0.. {
        let name = format!("{round}-{number}");
        let binding = json!({"exchange": name, "queue": format!("bound-{name}"), "binding_key": "a.#"});
        let steps: [(&'static str, u8, Value); 4] = [
            (
                "exchange",
                command::EXCHANGE_DECLARE,
                json!({"name": name, "type": "topic"}),
            ),
            ("binding", command::BIND_QUEUE, binding),
            (
                "subscription",
                command::CONSUME,
                json!({"topic": "t", "id": name, "durable": true}),
            ),
            ("queue", command::PUBLISH, json!({"topic": name, "payload": 1})),
        ];
        for (what, code, body) in steps {
            match client.try_call(code, &body.to_string()) {
                Ok(reply) => drop(reply.ok()),
                Err(_) => return declared,
            }
            declared.insert((what, name.clone()));
        }
    }
    declared
}

async fn listed(address: SocketAddr) -> Declared {
    let mut all = Declared::new();
    let mut exchanges = ExchangeServiceClient::new(channel(address).await.unwrap());
    let mut page_token = String::new();
    loop {
        let request = ListRequest {
            page_size: 1_000,
            page_token,
            ..ListRequest::default()
        };
        let page = exchanges.list(request).await.unwrap().into_inner();
        for exchange in page.exchanges {
            let request = ListBindingsRequest {
                exchange: exchange.name.clone(),
                ..ListBindingsRequest::default()
            };
            let bindings = exchanges.list_bindings(request).await.unwrap().into_inner().bindings;
            all.extend(bindings.iter().map(|_| ("binding", exchange.name.clone())));
            all.insert(("exchange", exchange.name));
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let mut topics = TopicServiceClient::new(channel(address).await.unwrap());
    loop {
        let request = ListSubscriptionsRequest {
            topic: "t".to_owned(),
            page_size: 1_000,
            page_token,
        };
        let page = topics.list_subscriptions(request).await.unwrap().into_inner();
        let names = page.subscriptions.into_iter();
        all.extend(names.map(|subscription| ("subscription", subscription.subscription)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let stats = BinaryClient::connect(address).stats();
    let queues = stats["Queues"].as_object().unwrap().iter();
    all.extend(
        queues
            .filter(|(_, ready)| **ready == 1)
            .map(|(name, _)| ("queue", name.clone())),
    );
    all
}

/// Small files, so that checkpoints and compaction come in between.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_declared_survives_kills_at_any_moment() {
    let mut random = Random::from_environment("what_was_declared");
    let options = ServerOptions::disk()
        .set("storage.wal_file_bytes", 65_536)
        .set("storage.compaction_threshold", 65_536);
    let mut server = Server::start(&options);
    let mut declared = Declared::new();
    for round in 0..8 {
        let address = server.messaging();
        let declaring = std::thread::spawn(move || declare_until_it_ends(address, round));
        tokio::time::sleep(Duration::from_millis(random.within(20..200))).await;
        server.kill();
        declared.extend(declaring.join().expect("a client"));
        server.restart();
        let listed = listed(server.messaging()).await;
        let lost: Vec<_> = declared.difference(&listed).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?}");
        assert!(listed.len() <= declared.len() + 1, "more than was asked for");
        declared = listed;
    }
    assert!(declared.len() > 8, "{declared:?}");
}
