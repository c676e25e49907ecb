//! Queues with settings of their own, and the end of queues.

mod consumers;
mod deletion;
mod limits;
mod settings;

use boltq_proto::queue::v1::{
    CreateQueueRequest, NackRequest, PublishRequest, Queue, QueueSettings, SubscribeInit, SubscribeRequest,
    SubscribeResponse, UpdateQueueRequest, subscribe_request,
};
use boltq_proto::r#type::v1::Message;
use boltq_tests::harness::grpc::{QueueClient, reason};
use bytes::Bytes;
use prost_types::FieldMask;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

fn limited(max_length: u64) -> QueueSettings {
    QueueSettings {
        max_length: Some(max_length),
        ..QueueSettings::default()
    }
}

/// Whether it is new.
async fn create(client: &mut QueueClient, queue: &str, settings: QueueSettings) -> Result<bool, Status> {
    let request = CreateQueueRequest {
        queue: queue.to_owned(),
        settings: Some(settings),
    };
    let created = client.create_queue(request).await?.into_inner();
    assert_eq!(created.queue.unwrap().name, queue);
    Ok(created.created)
}

async fn update(
    client: &mut QueueClient,
    queue: &str,
    settings: QueueSettings,
    mask: &[&str],
) -> Result<Queue, Status> {
    let request = UpdateQueueRequest {
        queue: queue.to_owned(),
        settings: Some(settings),
        update_mask: Some(FieldMask {
            paths: mask.iter().map(|path| (*path).to_owned()).collect(),
        }),
    };
    Ok(client.update_queue(request).await?.into_inner().queue.unwrap())
}

async fn pause(client: &mut QueueClient, queue: &str, paused: bool) {
    let settings = QueueSettings {
        paused,
        ..QueueSettings::default()
    };
    update(client, queue, settings, &["paused"]).await.unwrap();
}

/// As `put`, for publishes that are refused.
async fn try_put(client: &mut QueueClient, queue: &str, message: Message) -> Result<Bytes, Status> {
    let request = PublishRequest {
        queue: queue.to_owned(),
        message: Some(message),
    };
    Ok(client.publish(request).await?.into_inner().message_id)
}

/// Gives a message back as failed.
async fn fail(client: &mut QueueClient, token: Bytes) {
    let request = NackRequest {
        delivery_tokens: vec![token],
        ..NackRequest::default()
    };
    assert_eq!(client.nack(request).await.unwrap().into_inner().settled, 1);
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, why: &str) -> Status {
    let status = result.unwrap_err();
    assert_eq!((status.code(), reason(&status).as_str()), (code, why), "{status}");
    status
}

/// A subscription, as long as the sender lives.
async fn subscribe(
    client: &mut QueueClient,
    queue: &str,
    max_in_flight: u32,
) -> (mpsc::Sender<SubscribeRequest>, Streaming<SubscribeResponse>) {
    let (requests, receiver) = mpsc::channel(16);
    let init = SubscribeInit {
        queue: queue.to_owned(),
        max_in_flight,
        ..SubscribeInit::default()
    };
    let init = SubscribeRequest {
        request: Some(subscribe_request::Request::Init(init)),
    };
    requests.send(init).await.unwrap();
    let answers = client.subscribe(ReceiverStream::new(receiver)).await.unwrap();
    (requests, answers.into_inner())
}
