//! Binary protocol, section 3: confirm mode.

use boltq_tests::harness::binary::{BinaryClient, command};
use boltq_tests::harness::{Server, ServerOptions};
use serde_json::{Value, json};

fn publish(client: &mut BinaryClient) -> Value {
    client.call(command::PUBLISH, r#"{"topic":"q","payload":1}"#).ok()
}

#[test]
fn successful_publishes_are_numbered_from_one() {
    let server = Server::start(&ServerOptions::disk());
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(
        client.call(command::CONFIRM_SELECT, "ignored").ok(),
        json!({"status": "ok"})
    );
    for number in 1..=5 {
        let reply = publish(&mut client);
        assert_eq!(
            (&reply["seq_no"], &reply["ack"]),
            (&json!(number), &json!(true)),
            "{reply}"
        );
    }
}

#[test]
fn a_refused_publish_takes_no_number() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    client.call(command::CONFIRM_SELECT, "").ok();
    assert_eq!(publish(&mut client)["seq_no"], 1);
    let refused = client.call(command::PUBLISH, r#"{"topic":""}"#);
    refused.error();
    assert_eq!(refused.json().get("seq_no"), None);
    client.call(command::PUBLISH, "{").error();
    assert_eq!(publish(&mut client)["seq_no"], 2);
}

#[test]
fn other_commands_and_a_second_select_leave_the_numbers_alone() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    client.call(command::CONFIRM_SELECT, "").ok();
    publish(&mut client);
    let taken = client.consume("q").unwrap();
    assert_eq!(client.ack(&taken.id).ok(), json!({"status": "acked"}));
    client.call(command::CONFIRM_SELECT, "").ok();
    assert_eq!(publish(&mut client)["seq_no"], 2);
}

#[test]
fn the_mode_belongs_to_the_connection() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = BinaryClient::connect(server.messaging());
    assert_eq!(publish(&mut client).get("seq_no"), None);
    assert_eq!(publish(&mut client).get("ack"), None);
    client.call(command::CONFIRM_SELECT, "").ok();
    assert_eq!(
        publish(&mut client)["seq_no"],
        1,
        "publishes before the select are not numbered"
    );
    let mut other = BinaryClient::connect(server.messaging());
    assert_eq!(publish(&mut other).get("seq_no"), None);
}
