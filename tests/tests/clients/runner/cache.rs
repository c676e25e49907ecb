//! Steps with the cache.

use boltq::{Client, Condition, Error};
use serde_json::{Value, json};

use super::steps::text;
use super::{answers, duration};

pub(super) async fn perform(client: &Client, call: &str, step: &Value) -> Result<Value, Error> {
    let kv = client.kv();
    Ok(match call {
        "set" => {
            let condition = match (&step["if_absent"], &step["if_present"], step["if_version"].as_u64()) {
                (Value::Bool(true), _, _) => Condition::Absent,
                (_, Value::Bool(true), _) => Condition::Present,
                (_, _, Some(version)) => Condition::Version(version),
                _ => Condition::None,
            };
            let value = text(step, "value").to_owned();
            json!({"version": kv.set_if(text(step, "key"), value, duration(&step["ttl"]), condition).await?})
        }
        "get" => json!({"entry": kv.get(text(step, "key")).await?.as_ref().map(answers::entry)}),
        "delete" => {
            let key = text(step, "key");
            json!({"deleted": match step["if_version"].as_u64() {
                Some(version) => kv.delete_if_version(key, version).await?,
                None => kv.delete(key).await?,
            }})
        }
        "exists" => json!({"exists": kv.exists(text(step, "key")).await?}),
        "keys" => json!({"keys": kv.keys(text(step, "pattern")).await?}),
        "expire" => json!({"found": kv.expire(text(step, "key"), duration(&step["ttl"])).await?}),
        "increment" => {
            let delta = step["delta"].as_i64().unwrap_or(1);
            let (value, version) = kv.increment_versioned(text(step, "key"), delta).await?;
            json!({"value": value, "version": version})
        }
        "flush" => json!({"removed": kv.flush().await?}),
        other => panic!("kv.{other} is no step"),
    })
}
