//! Keys and TLS.

use boltq::{Client, Code, Error, Tls};
use boltq_tests::harness::{Server, ServerOptions};
use boltq_tests::testbed::{BedThread, TestBedOptions};
use clap::Parser;

#[tokio::test]
async fn a_key_goes_with_every_call_in_either_form() {
    let server = Server::start(&ServerOptions::memory().set("security.api_key", "s3cret"));
    let builder = || Client::builder().address(server.messaging().to_string());
    for builder in [builder().api_key("s3cret"), builder().bearer_token("s3cret")] {
        let client = builder.connect().await.expect("a client");
        client.queue("q").publish("x").await.expect("published");
    }
    for wrong in [builder(), builder().api_key("other")] {
        let error = wrong.connect().await.expect_err("no key, no connection");
        assert_eq!(
            (error.code(), error.reason()),
            (Code::Unauthenticated, Some("UNAUTHENTICATED"))
        );
        assert!(!error.is_retriable());
    }
    let unsendable = builder().api_key("a\nb").build();
    assert!(matches!(unsendable, Err(Error::Usage(_))), "{unsendable:?}");
}

#[tokio::test]
async fn tls_with_a_certificate_of_the_client_or_without() {
    let options = TestBedOptions::parse_from(["boltq-testbed", "--mtls", "--storage", "memory"]);
    let bed = BedThread::start(options).await;
    let file = |name: &str| bed.tls_file(name);
    let address = bed.addresses().remove(0);
    let builder = || {
        Client::builder()
            .address(address.clone())
            .timeout(std::time::Duration::from_secs(20))
    };
    let known = Tls::new()
        .ca_file(file("ca_file"))
        .identity(file("cert_file"), file("key_file"));
    let client = builder().tls(known.clone()).connect().await.expect("a client");
    client.queue("q").publish("x").await.expect("published");
    let named = builder().tls(known.server_name("localhost")).connect().await;
    named.expect("the certificate has this name too");
    let short = || builder().timeout(std::time::Duration::from_secs(2));
    for wrong in [
        short().tls(Tls::new().ca_file(file("ca_file"))),
        short().tls(Tls::new().ca_file(file("ca_file")).server_name("elsewhere")),
        short(),
    ] {
        let error = wrong.connect().await.expect_err("not let in");
        assert_eq!(error.reason(), None, "{error}");
    }
}

#[tokio::test]
async fn nobody_there_is_said_when_the_time_is_over() {
    let address = format!("127.0.0.1:{}", boltq_tests::harness::free_port());
    let builder = Client::builder()
        .address(address)
        .timeout(std::time::Duration::from_millis(300));
    let error = builder.connect().await.expect_err("nobody listens");
    assert!(matches!(error, Error::Unreachable(_)), "{error:?}");
    assert!(!error.is_outcome_unknown() && error.is_retriable());
}
