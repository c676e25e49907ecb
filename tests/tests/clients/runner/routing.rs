//! Steps with topics and exchanges.

use boltq::{Binding, Client, Error, ExchangeOptions, ExchangeType, TopicSubscribeOptions, TopicSubscription};
use serde_json::{Value, json};

use super::queues::{headers, message, publish_many};
use super::steps::text;

pub(super) async fn subscribe(client: &Client, step: &Value) -> Result<TopicSubscription, Error> {
    let options = TopicSubscribeOptions {
        subscription: step["subscription"].as_str().unwrap_or_default().to_owned(),
        durable: step["durable"] == true,
        max_in_flight: step["max_in_flight"]
            .as_u64()
            .unwrap_or_default()
            .try_into()
            .expect("32 bits"),
    };
    client.topic(text(step, "topic")).subscribe(options).await
}

pub(super) async fn topic(client: &Client, call: &str, step: &Value) -> Result<Value, Error> {
    if call == "list" {
        let all = client.topics().await?;
        let shown = all
            .iter()
            .map(|it| json!({"name": it.name, "durable_subscriptions": it.durable_subscriptions}));
        return Ok(json!({"topics": shown.collect::<Vec<_>>()}));
    }
    let topic = client.topic(text(step, "topic"));
    Ok(match call {
        "publish" => {
            let published = topic.publish(message(&step["message"])).await?;
            json!({"message_id": published.id.to_string(), "durable_subscriptions": published.durable_subscriptions})
        }
        "publish_many" => json!({"results": publish_many(client, step).await?}),
        "subscriptions" => {
            let all = topic.subscriptions().await?;
            let shown = all
                .iter()
                .map(|it| json!({"subscription": it.subscription, "queue": it.queue, "backlog": it.backlog}));
            json!({"subscriptions": shown.collect::<Vec<_>>()})
        }
        "delete_subscription" => json!({"purged": topic.delete_subscription(text(step, "subscription")).await?}),
        other => panic!("topic.{other} is no step"),
    })
}

pub(super) async fn exchange(client: &Client, call: &str, step: &Value) -> Result<Value, Error> {
    let exchanges = client.exchanges();
    let optional = |name: &str| step[name].as_str().unwrap_or_default().to_owned();
    Ok(match call {
        "declare" => {
            let options = ExchangeOptions {
                exchange_type: exchange_type(text(step, "type")),
                durable: step["durable"] == true,
                alternate_exchange: optional("alternate_exchange"),
            };
            json!({"exchange": shown(&exchanges.declare(text(step, "name"), options).await?)})
        }
        "delete" => {
            exchanges.delete(text(step, "name")).await?;
            json!({})
        }
        "bind" => {
            let binding = Binding {
                queue: text(step, "queue").to_owned(),
                binding_key: optional("binding_key"),
                headers: headers(&step["headers"]),
                match_all: step["match_all"] == true,
            };
            json!({"created": exchanges.bind(text(step, "exchange"), binding).await?})
        }
        "unbind" => {
            let key = optional("binding_key");
            json!({"removed": exchanges.unbind(text(step, "exchange"), text(step, "queue"), &key).await?})
        }
        "publish" => {
            let published = exchanges.publish(
                text(step, "exchange"),
                text(step, "routing_key"),
                message(&step["message"]),
            );
            let routed = published.await?;
            json!({"message_id": routed.id.to_string(), "routed": routed.queues})
        }
        "list" => json!({"exchanges": exchanges.list().await?.iter().map(shown).collect::<Vec<_>>()}),
        "bindings" => {
            let all = exchanges.bindings(text(step, "exchange")).await?;
            let shown = all.iter().map(|it| {
                json!({"queue": it.queue, "binding_key": it.binding_key, "headers": it.headers, "match_all": it.match_all})
            });
            json!({"bindings": shown.collect::<Vec<_>>()})
        }
        other => panic!("exchange.{other} is no step"),
    })
}

fn exchange_type(name: &str) -> ExchangeType {
    let full = format!("EXCHANGE_TYPE_{name}");
    ExchangeType::from_str_name(&full).unwrap_or_else(|| panic!("{name} is no type"))
}

fn shown(exchange: &boltq::proto::exchange::v1::Exchange) -> Value {
    json!({
        "name": exchange.name,
        "type": exchange.r#type().as_str_name().trim_start_matches("EXCHANGE_TYPE_"),
        "durable": exchange.durable,
        "alternate_exchange": exchange.alternate_exchange,
        "bindings": exchange.bindings,
    })
}
