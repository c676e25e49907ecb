//! Traces: from the publisher through the server to the consumer, told to a collector.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use boltq_proto::queue::v1::{Delivery, NackRequest, PublishRequest, PublishStreamRequest};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::binary::BinaryClient;
use boltq_tests::harness::grpc::{QueueCalls, QueueClient, connect, message};
use boltq_tests::harness::{Server, ServerOptions, free_port, http};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;
use tonic::Request;

use super::collector::{Collector, Told};
use super::scrape::Scrape;

pub(crate) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
pub(crate) const CALLER: &str = "00f067aa0ba902b7";

pub(crate) fn sampled() -> String {
    format!("00-{TRACE}-{CALLER}-01")
}

pub(crate) fn traced(endpoint: &str) -> ServerOptions {
    ServerOptions::memory().set("telemetry.otlp.endpoint", endpoint)
}

fn with_headers(headers: &[(&str, &str)]) -> Message {
    let headers = headers
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Message {
        headers: headers.collect(),
        ..message("x")
    }
}

/// Publishes with metadata.
pub(crate) async fn publish(
    client: &mut QueueClient,
    queue: &str,
    message: Message,
    metadata: &[(&'static str, &str)],
) {
    let mut request = Request::new(PublishRequest {
        queue: queue.to_owned(),
        message: Some(message),
    });
    for (key, value) in metadata {
        request.metadata_mut().insert(*key, value.parse().unwrap());
    }
    client.publish(request).await.expect("publish");
}

fn parent_header(delivery: &Delivery) -> Option<&str> {
    delivery.headers.get("traceparent").map(String::as_str)
}

fn named<'t>(told: &'t [Told], name: &str) -> Vec<&'t Told> {
    told.iter().filter(|told| told.span.name == name).collect()
}

pub(crate) fn one<'t>(told: &'t [Told], name: &str) -> &'t Told {
    let found = named(told, name);
    assert_eq!(found.len(), 1, "{name} among {told:#?}");
    found[0]
}

#[tokio::test]
async fn a_message_is_followed_from_the_caller_to_its_settlement() {
    let collector = Collector::start().await;
    let server = Server::start(&traced(&collector.endpoint()).set("telemetry.service_name", "shop"));
    let mut client = connect(server.messaging()).await;
    let metadata = [("traceparent", sampled()), ("tracestate", "a=1".to_owned())];
    let metadata = metadata.each_ref().map(|(key, value)| (*key, value.as_str()));
    publish(&mut client, "orders", message("x"), &metadata).await;
    let delivery = client.take_one("orders").await;
    assert_eq!(client.done(std::slice::from_ref(&delivery)).await, 1);

    let told = collector.spans(3).await;
    let (publish, deliver, settle) = (
        one(&told, "publish orders"),
        one(&told, "deliver orders"),
        one(&told, "settle orders"),
    );
    for span in [publish, deliver, settle] {
        assert_eq!(span.trace(), TRACE);
        assert_eq!(span.span.trace_state, "a=1");
        assert_eq!(span.span.kind, i32::from(SpanKind::Server));
        assert!(span.span.start_time_unix_nano > 0 && span.span.start_time_unix_nano <= span.span.end_time_unix_nano);
        assert_eq!(span.span.status, None, "it went well");
        assert_eq!(span.resource["service.name"], "shop");
        assert_eq!(span.attributes["messaging.system"], "boltq");
        assert_eq!(span.attributes["messaging.destination.name"], "orders");
    }
    assert_eq!(publish.parent(), CALLER);
    assert_eq!(deliver.parent(), publish.id());
    assert_eq!(deliver.links(), [(TRACE.to_owned(), publish.id())]);
    assert_eq!(settle.parent(), deliver.id());
    assert_eq!(settle.attributes["boltq.settlement"], "ack");
    assert_eq!(deliver.attributes["boltq.delivery.attempt"], "1");
    let id: String = delivery.message_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(publish.attributes["messaging.message.id"], id);
    assert_eq!(deliver.attributes["messaging.message.id"], id);
    // The consumer goes on with it.
    assert_eq!(
        parent_header(&delivery),
        Some(format!("00-{TRACE}-{}-01", publish.id()).as_str())
    );
    assert_eq!(delivery.headers["tracestate"], "a=1");
}

#[tokio::test]
async fn a_message_keeps_the_context_that_its_publisher_gave_it() {
    let collector = Collector::start().await;
    let server = Server::start(&traced(&collector.endpoint()));
    let mut client = connect(server.messaging()).await;
    let other = format!("00-{}-{}-01", "9".repeat(32), "8".repeat(16));
    publish(
        &mut client,
        "q",
        with_headers(&[("traceparent", &sampled()), ("color", "red")]),
        &[("traceparent", &other)],
    )
    .await;
    let delivery = client.take_one("q").await;
    let wanted = BTreeMap::from([
        ("traceparent".to_owned(), sampled()),
        ("color".to_owned(), "red".to_owned()),
    ]);
    assert_eq!(delivery.headers, wanted);
    let told = collector.spans(2).await;
    let (publish, deliver) = (one(&told, "publish q"), one(&told, "deliver q"));
    assert_eq!(
        (publish.trace(), publish.parent()),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    assert_eq!(
        (deliver.trace(), deliver.parent()),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    assert_eq!(deliver.links(), [(TRACE.to_owned(), CALLER.to_owned())]);
}

#[tokio::test]
async fn every_door_takes_and_gives_the_context() {
    let collector = Collector::start().await;
    let server = Server::start(&traced(&collector.endpoint()));
    let mut binary = BinaryClient::connect(server.messaging());
    binary.publish_with(&json!({"topic": "q", "payload": 1, "headers": {"traceparent": sampled()}}));
    let told = collector.spans(1).await;
    assert_eq!(one(&told, "publish q").parent(), CALLER);
    let body = json!({"exchange": "", "routing_key": "routed", "payload": 2}).to_string();
    let headers = [("traceparent", sampled())];
    let headers = headers.each_ref().map(|(key, value)| (*key, value.as_str()));
    let published = http::request(server.admin(), "POST", "/exchange/publish", &headers, body.as_bytes()).unwrap();
    assert_eq!(published.status, 200, "{}", published.text());
    let taken = binary.consume("routed").expect("the message");
    binary.ack(&taken.id).ok();
    let told = collector.spans(4).await;
    let (publish, deliver, settle) = (
        one(&told, "publish routed"),
        one(&told, "deliver routed"),
        one(&told, "settle routed"),
    );
    assert_eq!(
        (publish.trace(), publish.parent()),
        (TRACE.to_owned(), CALLER.to_owned())
    );
    assert_eq!((deliver.parent(), settle.parent()), (publish.id(), deliver.id()));
}

#[tokio::test]
async fn messages_of_a_batch_without_a_context_share_a_trace_that_begins_here() {
    let collector = Collector::start().await;
    let server = Server::start(&traced(&collector.endpoint()));
    let mut client = connect(server.messaging()).await;
    let request = PublishStreamRequest {
        queue: "q".to_owned(),
        messages: vec![message("a"), with_headers(&[("traceparent", &sampled())]), message("b")],
        ..PublishStreamRequest::default()
    };
    let mut answers = client
        .publish_stream(tokio_stream::iter([request]))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(answers.message().await.unwrap().unwrap().message_ids.len(), 3);
    let told = collector.spans(2).await;
    let (own, shared): (Vec<_>, Vec<_>) = told.iter().partition(|told| told.trace() == TRACE);
    assert_eq!((own.len(), shared.len()), (1, 1), "{told:#?}");
    assert_eq!(shared[0].parent(), "");
    assert_eq!(shared[0].attributes["messaging.batch.message_count"], "2");
    let deliveries = client.take("q", 3).await;
    let begun = format!("00-{}-{}-01", shared[0].trace(), shared[0].id());
    let carried: Vec<_> = deliveries.iter().map(parent_header).collect();
    assert_eq!(
        carried,
        [Some(begun.as_str()), Some(sampled().as_str()), Some(begun.as_str())]
    );
}

#[tokio::test]
async fn what_is_not_to_be_recorded_is_not() {
    let collector = Collector::start().await;
    let server = Server::start(&traced(&collector.endpoint()).set("telemetry.otlp.sample_ratio", 0));
    let mut client = connect(server.messaging()).await;
    let unsampled = sampled().replace("-01", "-00");
    publish(&mut client, "q", message("root"), &[]).await;
    publish(&mut client, "q", message("unsampled"), &[("traceparent", &unsampled)]).await;
    publish(&mut client, "q", with_headers(&[("traceparent", "nonsense")]), &[]).await;
    let deliveries = client.take("q", 3).await;
    // That nobody wants it is passed on, too.
    let carried: Vec<_> = deliveries.iter().map(parent_header).collect();
    assert_eq!(carried, [None, Some(unsampled.as_str()), Some("nonsense")]);
    assert_eq!(client.done(&deliveries).await, 3);
    // Spans are told in their order, so those of the messages before would be there.
    publish(&mut client, "last", message("x"), &[("traceparent", &sampled())]).await;
    let told = collector.spans(1).await;
    assert_eq!(told.len(), 1, "{told:#?}");
    one(&told, "publish last");
}

#[tokio::test]
async fn settlements_tell_how_and_a_lease_that_ends_is_one() {
    let collector = Collector::start().await;
    let options = traced(&collector.endpoint())
        .set("queue.retry_backoff", "0s")
        .set("queue.ack_timeout", "10ms");
    let server = Server::start(&options);
    let mut client = connect(server.messaging()).await;
    publish(&mut client, "q", message("x"), &[("traceparent", &sampled())]).await;
    client.take_one("q").await;
    // Nobody settles it. Then somebody does, and has a second for it.
    let told = collector.spans(3).await;
    assert_eq!(one(&told, "settle q").attributes["boltq.settlement"], "ack_timeout");
    let request = boltq_proto::queue::v1::ConsumeRequest {
        queue: "q".to_owned(),
        lease: boltq_tests::harness::grpc::duration(Duration::from_secs(3_600)),
        wait: boltq_tests::harness::grpc::duration(Duration::from_secs(30)),
        ..boltq_proto::queue::v1::ConsumeRequest::default()
    };
    let again = client.consume(request).await.unwrap().into_inner().deliveries;
    let nack = NackRequest {
        delivery_tokens: vec![again[0].delivery_token.clone()],
        dead_letter: true,
        ..NackRequest::default()
    };
    client.nack(nack).await.unwrap();
    let told = collector.spans(5).await;
    let settles: Vec<_> = named(&told, "settle q");
    assert_eq!(settles[1].attributes["boltq.settlement"], "dead_letter");
    assert_eq!(named(&told, "deliver q")[1].attributes["boltq.delivery.attempt"], "2");
    // What has died is still in its trace.
    let dead = client.take_one("q_dead_letter").await;
    assert!(parent_header(&dead).is_some_and(|parent| parent.contains(TRACE)));
}

#[tokio::test]
async fn without_a_collector_the_broker_goes_on_and_counts_what_is_dropped() {
    const MESSAGES: usize = 6_000;
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let mut server = Server::start(&traced(&format!("http://{address}")));
    let mut client = connect(server.messaging()).await;
    let request = |_| PublishStreamRequest {
        queue: "q".to_owned(),
        // Each has a span of its own.
        messages: vec![with_headers(&[("traceparent", &sampled())]); 500],
        ..PublishStreamRequest::default()
    };
    let requests: Vec<_> = (0..MESSAGES / 500).map(request).collect();
    let mut answers = client
        .publish_stream(tokio_stream::iter(requests))
        .await
        .unwrap()
        .into_inner();
    while let Some(answer) = answers.message().await.unwrap() {
        assert!(answer.failures.is_empty(), "{answer:?}");
    }
    let dropped = |scrape: &Scrape| scrape.value("boltq_traces_dropped_total");
    let scrape = Scrape::of(server.admin());
    assert!(dropped(&scrape) > 0.0);
    assert_eq!(scrape.value("boltq_traces_exported_total"), 0.0);
    // The one that comes gets what waits.
    let collector = Collector::start_at(address).await;
    let told = collector.spans(1_000).await;
    assert!(told.iter().all(|told| told.span.name == "publish q"));
    drop(client);
    assert!(server.terminate().success());
    assert!(server.log().contains("the collector does not take traces"));
}

#[tokio::test]
async fn a_server_that_stops_tells_what_it_has_not_told_yet() {
    let collector = Collector::start().await;
    let mut server = Server::start(&traced(&collector.endpoint()));
    let mut client = connect(server.messaging()).await;
    publish(&mut client, "q", message("x"), &[("traceparent", &sampled())]).await;
    drop(client);
    // The collector lives in this process, and must be able to answer.
    let stopped = tokio::task::spawn_blocking(move || server.terminate());
    assert!(stopped.await.unwrap().success());
    let told = collector.told();
    one(&told, "publish q");
}

#[tokio::test]
async fn a_server_that_tells_nobody_leaves_messages_alone() {
    let server = Server::start(&ServerOptions::memory());
    let mut client = connect(server.messaging()).await;
    publish(&mut client, "q", message("x"), &[("traceparent", &sampled())]).await;
    publish(&mut client, "q", with_headers(&[("traceparent", &sampled())]), &[]).await;
    let deliveries = client.take("q", 2).await;
    let carried: Vec<_> = deliveries.iter().map(parent_header).collect();
    assert_eq!(carried, [None, Some(sampled().as_str())]);
    let scrape = Scrape::of(server.admin());
    assert_eq!(scrape.value("boltq_traces_exported_total"), 0.0);
}
