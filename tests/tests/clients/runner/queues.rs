//! Steps with queues.

use std::collections::BTreeMap;
use std::time::Duration;

use boltq::{
    Client, ConsumeOptions, Delivery, Error, Message, Overflow, PublisherOptions, QueueSettings, SubscribeOptions,
    Subscription,
};
use bytes::Bytes;
use serde_json::{Value, json};

use super::steps::text;
use super::{answers, duration};

pub(super) fn subscribe(client: &Client, step: &Value) -> Subscription {
    client.queue(text(step, "queue")).subscribe(SubscribeOptions {
        max_in_flight: number(step, "max_in_flight"),
        lease: duration(&step["lease"]),
        ..SubscribeOptions::default()
    })
}

pub(super) async fn perform(client: &Client, call: &str, step: &Value) -> Result<Value, Error> {
    // Some steps are about tokens and ids alone.
    let queue = client.queue(step["queue"].as_str().unwrap_or_default());
    Ok(match call {
        "publish" => json!({"message_id": queue.publish(message(&step["message"])).await?.to_string()}),
        "publish_many" => json!({"results": publish_many(client, step).await?}),
        "consume" => {
            let options = ConsumeOptions {
                max_messages: number(step, "max_messages"),
                wait: duration(&step["wait"]).unwrap_or_default(),
                lease: duration(&step["lease"]),
            };
            deliveries(&queue.consume(options).await?)
        }
        "peek" => deliveries(&queue.peek(number(step, "max_messages")).await?),
        "ack" => answers::settled("settled", queue.ack(tokens(step)).await?),
        "nack" if step["dead_letter"] == true => answers::settled("settled", queue.dead_letter(tokens(step)).await?),
        "nack" if step["release"] == true => answers::settled("settled", queue.release(tokens(step)).await?),
        "nack" => answers::settled("settled", queue.nack(tokens(step), duration(&step["delay"])).await?),
        "extend" => {
            let lease = duration(&step["lease"]).expect("a lease");
            answers::settled("extended", queue.extend(tokens(step), lease).await?)
        }
        "purge" => json!({"purged": queue.purge().await?}),
        "purge_dead_letters" => json!({"purged": queue.purge_dead_letters().await?}),
        "redrive" => {
            let max = step["max_messages"].as_u64().unwrap_or_default();
            json!({"redriven": queue.redrive(headers(&step["headers"]), max).await?})
        }
        "create" => {
            let created = queue.create(settings(&step["settings"])).await?;
            json!({"created": created, "queue": answers::queue(&queue.get().await?)})
        }
        "update" => {
            let fields: Vec<&str> = step["update_mask"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .collect();
            queue.update(settings(&step["settings"]), &fields).await?;
            json!({"queue": answers::queue(&queue.get().await?)})
        }
        "delete" => json!({"deleted_messages": queue.delete(step["if_empty"] == true).await?}),
        "get" => json!({"queue": answers::queue(&queue.get().await?)}),
        "list" => {
            let queues = client.queues(text(step, "prefix")).await?;
            json!({"queues": queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>()})
        }
        "scheduled" => {
            let all = queue.scheduled().await?;
            let shown = all
                .iter()
                .map(|one| json!({"message_id": one.id.to_string(), "priority": one.priority}));
            json!({"messages": shown.collect::<Vec<_>>()})
        }
        "cancel" => {
            let ids: Vec<_> = step["message_ids"]
                .as_array()
                .expect("ids")
                .iter()
                .map(answers::message_id)
                .collect();
            answers::settled("cancelled", queue.cancel(&ids).await?)
        }
        "reschedule" => {
            let delay = duration(&step["delay"]).expect("a delay");
            queue
                .reschedule(&answers::message_id(&step["message_id"]), delay)
                .await?;
            json!({})
        }
        other => panic!("queue.{other} is no step"),
    })
}

pub(super) async fn publish_many(client: &Client, step: &Value) -> Result<Vec<Value>, Error> {
    let publisher = super::many::publisher(client, step, PublisherOptions::default());
    let mut confirmations = Vec::new();
    for one in step["messages"].as_array().expect("messages") {
        confirmations.push(publisher.publish(message(one)).await?);
    }
    let mut results = Vec::new();
    for confirmation in confirmations {
        results.push(match confirmation.await {
            Ok(id) => json!({"message_id": id.to_string()}),
            Err(error) => json!({"error": {"reason": error.reason()}}),
        });
    }
    publisher.close().await;
    Ok(results)
}

fn deliveries(all: &[Delivery]) -> Value {
    json!({"deliveries": all.iter().map(answers::delivery).collect::<Vec<_>>()})
}

fn tokens(step: &Value) -> Vec<Bytes> {
    step["tokens"]
        .as_array()
        .expect("tokens")
        .iter()
        .map(answers::from_hex)
        .collect()
}

fn number(step: &Value, name: &str) -> u32 {
    step[name].as_u64().unwrap_or_default().try_into().expect("32 bits")
}

pub(super) fn headers(value: &Value) -> BTreeMap<String, String> {
    let members = value.as_object().into_iter().flatten();
    members
        .map(|(name, value)| (name.clone(), value.as_str().expect("a text").to_owned()))
        .collect()
}

pub(super) fn message(value: &Value) -> Message {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let mut message = Message::new(text("payload").expect("a payload")).headers(headers(&value["headers"]));
    if let Some(content_type) = text("content_type") {
        message = message.content_type(content_type);
    }
    if let Some(priority) = value["priority"].as_i64() {
        message = message.priority(priority.try_into().expect("32 bits"));
    }
    if let Some(delay) = duration(&value["delay"]) {
        message = message.delay(delay);
    }
    if let Some(ttl) = duration(&value["ttl"]) {
        message = message.ttl(ttl);
    }
    if let Some(key) = text("idempotency_key") {
        message = message.idempotency_key(key);
    }
    if let Some(key) = text("ordering_key") {
        message = message.ordering_key(key);
    }
    message
}

fn settings(value: &Value) -> QueueSettings {
    let duration = |name: &str| -> Option<Duration> { duration(&value[name]) };
    let number = |name: &str| value[name].as_u64();
    QueueSettings {
        max_retry: number("max_retry").map(|count| count.try_into().expect("32 bits")),
        retry_backoff: duration("retry_backoff"),
        retry_backoff_max: duration("retry_backoff_max"),
        ack_timeout: duration("ack_timeout"),
        default_ttl: duration("default_ttl"),
        max_length: number("max_length"),
        max_length_bytes: number("max_length_bytes"),
        overflow: match value["overflow"].as_str() {
            Some("DROP_OLDEST") => Overflow::DropOldest,
            _ => Overflow::Reject,
        },
        dead_letter_queue: value["dead_letter_queue"].as_str().unwrap_or_default().to_owned(),
        dedup_ttl: duration("dedup_ttl"),
        single_active_consumer: value["single_active_consumer"] == true,
        paused: value["paused"] == true,
    }
}
