//! `boltq topic …`

use std::ffi::OsString;
use std::pin::pin;

use boltq_proto::topic::v1::{
    DeleteSubscriptionRequest, ListSubscriptionsRequest, ListTopicsRequest, PublishRequest, SubscribeRequest,
};
use bytes::Bytes;

use super::follow::{ended, interrupted};
use super::publish::Template;
use super::{Context, note};
use crate::args::{Envelope, Topic};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{self, Changed, Delivered, Id, PublishedTopic, Rows};

/// Asked for at a time.
const PAGE: u32 = 1_000;

pub(super) async fn run(context: &mut Context, topic: Topic) -> Result<(), CliError> {
    match topic {
        Topic::Publish {
            topic,
            payload,
            envelope,
        } => publish(context, topic, payload, envelope).await,
        Topic::Subscribe {
            topic,
            id,
            durable,
            max,
        } => {
            let request = SubscribeRequest {
                topic,
                subscription: id,
                durable,
                max_in_flight: 0,
            };
            subscribe(context, request, max).await
        }
        Topic::List => list(context).await,
        Topic::Subscriptions { topic } => subscriptions(context, topic).await,
        Topic::DeleteSubscription { topic, id } => delete_subscription(context, topic, id).await,
    }
}

async fn publish(context: &mut Context, topic: String, payload: OsString, envelope: Envelope) -> Result<(), CliError> {
    let message = Template::of(envelope)?.message(Bytes::from(payload.into_encoded_bytes()));
    let request = PublishRequest {
        topic: topic.clone(),
        message: Some(message),
    };
    let response = answer(context.server.topics().publish(request), None).await?;
    context.printer.print(&PublishedTopic {
        topic: &topic,
        message_id: Id::read(&response.message_id)?,
        durable_subscriptions: response.durable_subscriptions,
    })?;
    Ok(())
}

async fn subscribe(context: &mut Context, request: SubscribeRequest, max: Option<u64>) -> Result<(), CliError> {
    let mut interrupted = pin!(interrupted()?);
    let mut responses = answer(context.server.topics().subscribe(request), None).await?;
    let mut left = max.unwrap_or(u64::MAX);
    while left > 0 {
        let response = tokio::select! {
            biased;
            () = &mut interrupted => return Ok(()),
            response = responses.message() => response?,
        };
        let response = response.ok_or_else(|| ended("the server ended the stream"))?;
        if response.dropped > 0 {
            note(format_args!(
                "{} messages were dropped: they came faster than they were printed",
                response.dropped
            ));
        }
        for message in response.messages {
            if left > 0 {
                left -= 1;
                context.printer.print(&Delivered::pushed(message)?)?;
            }
        }
        context.printer.flush()?;
    }
    Ok(())
}

async fn list(context: &mut Context) -> Result<(), CliError> {
    let mut client = context.server.topics();
    let mut topics = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListTopicsRequest {
            page_size: PAGE,
            page_token,
        };
        let page = answer(client.list_topics(request), None).await?;
        topics.extend(page.topics.into_iter().map(printer::Topic::from));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    if topics.is_empty() {
        note("no topics");
    }
    context.printer.print(&Rows(topics).show::<3>())?;
    Ok(())
}

async fn subscriptions(context: &mut Context, topic: String) -> Result<(), CliError> {
    let mut client = context.server.topics();
    let mut subscriptions = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = ListSubscriptionsRequest {
            topic: topic.clone(),
            page_size: PAGE,
            page_token,
        };
        let page = answer(client.list_subscriptions(request), None).await?;
        subscriptions.extend(page.subscriptions.into_iter().map(printer::Subscription::from));
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    if subscriptions.is_empty() {
        note("no durable subscriptions");
    }
    context.printer.print(&Rows(subscriptions).show::<4>())?;
    Ok(())
}

async fn delete_subscription(context: &mut Context, topic: String, id: String) -> Result<(), CliError> {
    let request = DeleteSubscriptionRequest {
        topic: topic.clone(),
        subscription: id.clone(),
    };
    let purged = answer(context.server.topics().delete_subscription(request), None)
        .await?
        .purged;
    context.printer.print(&Changed {
        text: format!("deleted subscription {id} of {topic}, messages in its backlog: {purged}"),
        fields: [
            ("topic", topic.into()),
            ("subscription", id.into()),
            ("purged", purged.into()),
        ]
        .into(),
    })?;
    Ok(())
}
