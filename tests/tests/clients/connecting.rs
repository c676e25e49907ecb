//! Addresses at which there is no server, or none of BoltQ, or TLS on one side only: `clients/README.md` has the rule.

use std::time::Duration;

use boltq::{Client, ClientBuilder, Code, Delivery, Error, Failed, PublisherOptions, SubscribeOptions, Tls};
use boltq_tests::harness::{Server, ServerOptions, eventually_async, free_port, within};
use boltq_tests::testbed::{BedThread, TestBedOptions};
use clap::Parser;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// What a call may take here, and what it takes if it does not wait for that.
const CALL: Duration = Duration::from_secs(3600);
const SOON: Duration = Duration::from_secs(60);
const HTTP_ONLY: &str = "speaks HTTP/1.1 and not gRPC: it is probably the port of the HTTP API";
const OTHER: &str = "speaks neither gRPC nor HTTP";

fn at(address: impl std::fmt::Display) -> ClientBuilder {
    Client::builder().address(address.to_string()).timeout(CALL)
}

/// How calls of all kinds fail.
async fn failures(builder: ClientBuilder) -> Vec<Error> {
    let client = builder.clone().build().expect("a client");
    let (queue, topic, kv) = (client.queue("q"), client.topic("t"), client.kv());
    let publisher = queue.publisher(PublisherOptions::default());
    let given = [publisher.publish("x").await, publisher.publish("y").await].map(|given| given.expect("room"));
    let [first, second] = given;
    let mut subscription = queue.subscribe(SubscribeOptions::default());
    let calls = async {
        tokio::join!(
            async { builder.connect().await.expect_err("not connected") },
            async { queue.purge().await.expect_err("no server") },
            async { queue.publish("x").await.expect_err("no server") },
            async { topic.publish("x").await.expect_err("no server") },
            async { kv.increment("n", 1).await.expect_err("no server") },
            async { kv.watch("*", false).await.expect_err("no server") },
            async { subscription.next().await.expect("an end").expect_err("no server") },
            async { first.await.expect_err("no server") },
            async { second.await.expect_err("no server") },
        )
    };
    let (a, b, c, d, e, f, g, h, i) = within(SOON, "calls fail", Box::pin(calls)).await;
    vec![a, b, c, d, e, f, g, h, i]
}

async fn is_wrong(address: impl std::fmt::Display, tls: Option<Tls>, text: &str) {
    let mut builder = at(&address);
    if let Some(tls) = tls {
        builder = builder.tls(tls);
    }
    for error in failures(builder.clone()).await {
        assert!(matches!(error, Error::WrongServer(_)), "{error:?}");
        assert!(!error.is_outcome_unknown() && error.code() == Code::Unavailable);
        let expected = format!("{address} {text}");
        assert!(error.to_string().contains(&expected), "{error} is not {expected}");
    }
    let client = builder.build().expect("a client");
    let mut worker = client
        .queue("q")
        .worker()
        .start(|_: Delivery| async { Ok::<(), Failed>(()) });
    let ended = within(SOON, "the worker ends", worker.ended()).await;
    assert!(matches!(ended, Err(Error::WrongServer(_))), "{ended:?}");
}

/// A server that answers everything with these bytes, and hangs up.
async fn answering(answer: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 64];
            let _ = stream.read(&mut asked).await;
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_port_of_the_http_api_and_other_servers_of_http_are_told_apart() {
    let server = Server::start(&ServerOptions::memory());
    is_wrong(server.admin(), None, HTTP_ONLY).await;
    let web = answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    is_wrong(web, None, HTTP_ONLY).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_on_one_side_only_is_said() {
    let options = TestBedOptions::parse_from(["boltq-testbed", "--tls", "--storage", "memory"]);
    let bed = BedThread::start(options).await;
    let tls = || Tls::new().ca_file(bed.tls_file("ca_file"));
    is_wrong(bed.addresses().remove(0), None, "speaks TLS, and this client does not").await;
    is_wrong(bed.admins().remove(0), Some(tls()), HTTP_ONLY).await;
    let plain = Server::start(&ServerOptions::memory());
    is_wrong(
        plain.messaging(),
        Some(tls()),
        "does not speak TLS, and this client does",
    )
    .await;
    is_wrong(plain.admin(), Some(tls()), HTTP_ONLY).await;
    let other = answering(b"-ERR unknown command 'PRI'\r\n").await;
    is_wrong(other, None, OTHER).await;
    is_wrong(other, Some(tls()), OTHER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_something_else_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let incoming = tokio_stream::wrappers::TcpListenerStream::new(listener);
    let (_, health) = tonic_health::server::health_reporter();
    tokio::spawn(
        tonic::transport::Server::builder()
            .add_service(health)
            .serve_with_incoming(incoming),
    );
    for error in failures(at(address)).await {
        assert_eq!(error.code(), Code::Unimplemented);
        let expected = format!("{address} does not know this call: it is no server of BoltQ");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_address_is_passed_over_if_there_is_another() {
    let server = Server::start(&ServerOptions::memory());
    for _ in 0..8 {
        let builder = at(server.admin()).address(server.messaging().to_string());
        let client = within(SOON, "the client connects", builder.connect())
            .await
            .expect("a client");
        client.topic("t").publish("x").await.expect("published");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_said_when_the_time_to_connect_is_over() {
    let addresses = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let builder = at(&addresses[0]).address(addresses[1].clone());
    for error in failures(builder.connect_timeout(Duration::from_millis(300))).await {
        assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
        assert!(!error.is_outcome_unknown() && error.code() == Code::Unavailable);
        let text = error.to_string();
        assert!(
            text.starts_with("no server could be reached: none has answered within 300ms: "),
            "{text}"
        );
        assert!(addresses.iter().all(|address| text.contains(address)), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_starts_is_waited_for_by_what_has_the_time() {
    let mut server = Server::start(&ServerOptions::memory());
    server.kill();
    let address = server.messaging();
    let patient = at(address).connect_timeout(CALL).build().expect("a client");
    let impatient = at(address)
        .connect_timeout(Duration::from_millis(1))
        .build()
        .expect("a client");
    let (worked, mut work) = tokio::sync::mpsc::channel(1);
    let worker = impatient.queue("jobs").worker().start(move |_: Delivery| {
        let worked = worked.clone();
        async move {
            worked.send(()).await?;
            Ok::<(), Failed>(())
        }
    });
    let error = impatient.queue("jobs").purge().await.expect_err("no server");
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    let publishing = tokio::spawn(async move { patient.queue("jobs").publish("x").await });
    server.start_again();
    let published = within(SOON, "the publish", publishing).await.expect("no panic");
    published.expect("published");
    within(SOON, "the work", work.recv()).await.expect("worked");
    within(SOON, "the worker stops", worker.stop()).await.expect("stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_has_answered_is_waited_for_as_long_as_a_call_may_take() {
    let mut server = Server::start(&ServerOptions::memory());
    let limit = Duration::from_secs(2);
    let client = at(server.messaging()).connect_timeout(limit).build().expect("a client");
    let status = || async { client.cluster().status().await.ok() };
    eventually_async(SOON, "the server answers", status).await;
    server.kill();
    let waiting = client.clone();
    let publishing = tokio::spawn(async move { waiting.queue("jobs").publish("x").await });
    tokio::time::sleep(2 * limit).await;
    assert!(!publishing.is_finished(), "it waits");
    server.start_again();
    let published = within(SOON, "the publish", publishing).await.expect("no panic");
    published.expect("published");
}
