//! Which step is what.

use std::sync::Arc;
use std::time::Duration;

use boltq::{Client, Error};
use serde_json::{Value, json};

use super::context::{Context, Open, Progress};
use super::{answers, cache, duration, many, queues, routing, workers};

/// Does a step.
pub(super) async fn perform(context: &Arc<Context>, step: &Value, timeout: Duration) -> Result<Value, Error> {
    let nobody_looks = Progress {
        reached: Arc::default(),
        stop: Arc::new(tokio::sync::watch::channel(false).0),
    };
    perform_with(context, step, timeout, &nobody_looks).await
}

/// Does a step, and tells how far it is.
pub(super) async fn perform_with(
    context: &Arc<Context>,
    step: &Value,
    timeout: Duration,
    progress: &Progress,
) -> Result<Value, Error> {
    let client = context.client(timeout);
    let what = step["do"].as_str().expect("what to do");
    let (service, call) = what.split_once('.').unwrap_or((what, ""));
    match (service, call) {
        ("queue", "subscribe") => {
            let stream = queues::subscribe(&client, step);
            open(context, step, Open::Queue(stream)).await
        }
        ("topic", "subscribe") => {
            let stream = routing::subscribe(&client, step).await?;
            open(context, step, Open::Topic(stream)).await
        }
        ("kv", "watch") => {
            let initial = step["initial"].as_bool().unwrap_or_default();
            let stream = client.kv().watch(text(step, "pattern"), initial).await?;
            open(context, step, Open::Cache(Box::new(stream))).await
        }
        ("queue", _) => queues::perform(&client, call, step).await,
        ("topic", _) => routing::topic(&client, call, step).await,
        ("exchange", _) => routing::exchange(&client, call, step).await,
        ("kv", _) => cache::perform(&client, call, step).await,
        ("stream", "receive") => receive(context, step).await,
        ("stream", "close") => {
            let closed = context.streams.lock().await.remove(text(step, "from"));
            assert!(closed.is_some(), "no stream of this name");
            Ok(json!({}))
        }
        ("many", "publish") => many::publish(&client, step, progress).await,
        ("many", "work") => many::work(&client, step, progress).await,
        ("many", "consume") => many::consume(&client, step).await,
        ("many", "progress") => many::await_progress(&context.progress(text(step, "of")), step, timeout).await,
        ("many", "stop") => {
            context.progress(text(step, "of")).stop.send_replace(true);
            Ok(json!({}))
        }
        ("worker", _) => workers::perform(context, &client, call, step).await,
        ("join", _) => context.join(text(step, "of")).await,
        ("admin", "stats") => stats(&client).await,
        ("cluster", "status") => status(&client).await,
        ("server", "restart") => Ok(context.command("restart 0").await),
        ("cluster", "kill_leader") => {
            let answer = context.command("kill-leader").await;
            Ok(json!({"node": answer["name"]}))
        }
        ("cluster", "restart_killed") => Ok(context.command("restart-killed").await),
        ("cluster", "rolling_restart") => Ok(context.command("rolling-restart").await),
        ("sleep", _) => {
            tokio::time::sleep(duration(&step["for"]).expect("how long")).await;
            Ok(json!({}))
        }
        _ => panic!("{what} is no step"),
    }
}

async fn open(context: &Context, step: &Value, stream: Open) -> Result<Value, Error> {
    context.streams.lock().await.insert(text(step, "as").to_owned(), stream);
    Ok(json!({}))
}

async fn receive(context: &Context, step: &Value) -> Result<Value, Error> {
    let name = text(step, "from");
    // Taken out meanwhile, so that others can be used.
    let mut stream = context
        .streams
        .lock()
        .await
        .remove(name)
        .expect("a stream of this name");
    let mut items = Vec::new();
    for _ in 0..step["count"].as_u64().expect("how many") {
        let next = match &mut stream {
            Open::Queue(stream) => stream
                .next()
                .await
                .map(|next| next.map(|delivery| answers::delivery(&delivery))),
            Open::Topic(stream) => stream
                .next()
                .await
                .map(|next| next.map(|message| answers::topic_message(&message))),
            Open::Cache(stream) => stream.next().await.map(|next| next.map(|event| answers::event(&event))),
        };
        items.push(next.unwrap_or(Err(Error::Closed))?);
    }
    context.streams.lock().await.insert(name.to_owned(), stream);
    Ok(json!({"items": items}))
}

async fn stats(client: &Client) -> Result<Value, Error> {
    let stats = client.stats().await?;
    let storage = stats.storage.unwrap_or_default();
    Ok(json!({"version": stats.version, "storage": {"mode": storage.mode, "writable": storage.writable}}))
}

async fn status(client: &Client) -> Result<Value, Error> {
    let status = client.cluster().status().await?;
    let nodes: Vec<Value> = status
        .nodes
        .iter()
        .map(|node| json!({"node_id": node.node_id, "voter": node.voter}))
        .collect();
    let groups: Vec<&str> = status.groups.iter().map(|group| group.name.as_str()).collect();
    Ok(json!({"enabled": status.enabled, "nodes": nodes, "groups": groups}))
}

/// An argument that has to be there.
pub(super) fn text<'a>(step: &'a Value, name: &str) -> &'a str {
    step[name].as_str().unwrap_or_else(|| panic!("{name} of {step}"))
}
