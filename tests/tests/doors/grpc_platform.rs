//! gRPC: health, reflection, gRPC-Web, and what stands beside the services on the same port.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use boltq_proto::queue::v1::{PublishRequest, PublishResponse};
use boltq_tests::harness::grpc::{QueueCalls, channel, connect, message};
use boltq_tests::harness::{Server, ServerOptions, http};
use prost::Message;
use prost_types::FileDescriptorProto;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

fn server() -> Server {
    Server::start(&ServerOptions::memory())
}

#[tokio::test]
async fn health_says_serving_for_the_server_and_its_queue_service() {
    let server = server();
    let mut health = HealthClient::new(channel(server.messaging()).await.unwrap());
    for service in ["", "boltq.queue.v1.QueueService"] {
        let answer = health
            .check(HealthCheckRequest {
                service: service.to_owned(),
            })
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    let unknown = health
        .check(HealthCheckRequest {
            service: "nobody".to_owned(),
        })
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), tonic::Code::NotFound);
}

async fn reflect(server: &Server, message_request: MessageRequest) -> ServerReflectionResponse {
    let mut client = ServerReflectionClient::new(channel(server.messaging()).await.unwrap());
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(message_request),
    };
    let mut responses = client
        .server_reflection_info(tokio_stream::iter([request]))
        .await
        .unwrap()
        .into_inner();
    responses.message().await.unwrap().unwrap()
}

#[tokio::test]
async fn reflection_lists_the_services_and_describes_them() {
    let server = server();
    let answer = reflect(&server, MessageRequest::ListServices(String::new())).await;
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let names: BTreeSet<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    for name in [
        "boltq.queue.v1.QueueService",
        "boltq.topic.v1.TopicService",
        "boltq.exchange.v1.ExchangeService",
        "boltq.admin.v1.AdminService",
        "boltq.cluster.v1.ClusterService",
        "boltq.kv.v1.KvService",
        "grpc.health.v1.Health",
    ] {
        assert!(names.contains(name), "{name} in {names:?}");
    }
    let symbol = "boltq.queue.v1.QueueService".to_owned();
    let answer = reflect(&server, MessageRequest::FileContainingSymbol(symbol)).await;
    assert!(
        matches!(
            answer.message_response,
            Some(MessageResponse::FileDescriptorResponse(_))
        ),
        "{answer:?}"
    );
}

/// So that tools show why a call has failed, and not bytes.
#[tokio::test]
async fn reflection_describes_the_details_of_failures() {
    let server = server();
    let symbol = "google.rpc.ErrorInfo".to_owned();
    let answer = reflect(&server, MessageRequest::FileContainingSymbol(symbol)).await;
    let Some(MessageResponse::FileDescriptorResponse(files)) = answer.message_response else {
        panic!("{answer:?}");
    };
    let file = FileDescriptorProto::decode(&*files.file_descriptor_proto[0]).unwrap();
    let fields = file.message_type[0].field.iter();
    let fields: Vec<_> = fields.map(|field| (field.name(), field.number())).collect();
    assert_eq!(fields, [("reason", 1), ("domain", 2), ("metadata", 3)]);
}

/// The tool that people reach for. Its path is that of this repository's tools, then the `PATH`.
#[test]
fn grpcurl_lists_describes_and_publishes() {
    let tool = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/grpcurl");
    let tool = if tool.is_file() { tool } else { PathBuf::from("grpcurl") };
    if Command::new(&tool).arg("-version").output().is_err() {
        println!("skipped: no grpcurl in .tools/bin or the PATH");
        return;
    }
    let server = server();
    let address = server.messaging().to_string();
    let run = |before: &[&str], after: &[&str]| -> String {
        let output = Command::new(&tool)
            .arg("-plaintext")
            .args(before)
            .arg(&address)
            .args(after)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(run(&[], &["list"]).contains("boltq.queue.v1.QueueService"));
    assert!(run(&[], &["describe", "boltq.queue.v1.PublishRequest"]).contains("message PublishRequest"));
    let request = r#"{"queue":"email_jobs","message":{"payload":"eyJ0byI6ImEifQ=="}}"#;
    let answer = run(&["-d", request], &["boltq.queue.v1.QueueService/Publish"]);
    assert!(answer.contains("messageId"), "{answer}");
    let taken = run(
        &["-d", r#"{"queue":"email_jobs"}"#],
        &["boltq.queue.v1.QueueService/Consume"],
    );
    assert!(taken.contains("eyJ0byI6ImEifQ=="), "{taken}");
    let unknown = [
        "-plaintext",
        "-d",
        r#"{"queue":"unknown"}"#,
        &address,
        "boltq.queue.v1.QueueService/PurgeQueue",
    ];
    let failed = Command::new(&tool).args(unknown).output().unwrap();
    let errors = String::from_utf8_lossy(&failed.stderr);
    assert!(errors.contains(r#""reason": "QUEUE_NOT_FOUND""#), "{errors}");
}

/// gRPC frame: one flag byte, four bytes of length (big-endian), the message.
fn grpc_frame(message: &impl Message) -> Vec<u8> {
    let body = message.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap();
    [&[0][..], &length.to_be_bytes(), &body].concat()
}

#[tokio::test]
async fn grpc_web_works_over_http_1() {
    let server = server();
    let request = PublishRequest {
        queue: "web".into(),
        message: Some(message("from a browser")),
    };
    let headers = [
        ("content-type", "application/grpc-web+proto"),
        ("x-grpc-web", "1"),
        ("origin", "http://a.example"),
    ];
    let path = "/boltq.queue.v1.QueueService/Publish";
    let body = grpc_frame(&request);
    let response = http::request(server.messaging(), "POST", path, &headers, &body).unwrap();
    assert_eq!(response.status, 200, "{:?}", response.headers);
    let length = u32::from_be_bytes(response.body[1..5].try_into().unwrap()) as usize;
    let answer = PublishResponse::decode(&response.body[5..5 + length]).unwrap();
    assert_eq!(answer.message_id.len(), 16);
    let trailers = &response.body[5 + length..];
    assert_eq!(trailers[0], 0x80, "the last frame holds the trailers");
    assert!(String::from_utf8_lossy(&trailers[5..]).contains("grpc-status:0"));
    let taken = connect(server.messaging()).await.take_one("web").await;
    assert_eq!(
        (&taken.payload[..], taken.message_id),
        (&b"from a browser"[..], answer.message_id)
    );
}

#[tokio::test]
async fn an_unknown_method_is_unimplemented() {
    let server = server();
    let mut client = tonic::client::Grpc::new(channel(server.messaging()).await.unwrap());
    for path in [
        "/boltq.queue.v1.QueueService/Teleport",
        "/boltq.nothing.v1.NoService/Call",
    ] {
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<PublishRequest, PublishResponse>::default();
        let request = tonic::Request::new(PublishRequest::default());
        let path = path.parse().unwrap();
        let status = client.unary(request, path, codec).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unimplemented);
    }
}

#[test]
fn a_browser_that_comes_to_the_messaging_port_gets_an_http_answer() {
    let server = server();
    let response = http::get(server.messaging(), "/").unwrap();
    assert_eq!(response.status, 404);
}
