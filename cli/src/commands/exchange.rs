//! `boltq exchange …`

use std::ffi::OsString;

use boltq_proto::exchange::v1::{
    BindRequest, Binding, DeclareRequest, DeleteRequest, ExchangeType, ListBindingsRequest, ListRequest,
    PublishRequest, UnbindRequest,
};
use bytes::Bytes;

use super::publish::Template;
use super::{Context, note};
use crate::args::{Envelope, Exchange, ExchangeKind};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{self, Changed, Id, Routed, Rows};

/// Asked for at a time.
const PAGE: u32 = 1_000;

pub(super) async fn run(context: &mut Context, exchange: Exchange) -> Result<(), CliError> {
    match exchange {
        Exchange::Declare { name, kind, alternate } => declare(context, name, kind, alternate).await,
        Exchange::Delete { name } => delete(context, name).await,
        Exchange::Bind {
            exchange,
            queue,
            key,
            headers,
            match_all,
        } => {
            let binding = Binding {
                queue,
                binding_key: key,
                headers: headers.into_iter().collect(),
                match_all,
            };
            bind(context, exchange, binding).await
        }
        Exchange::Unbind { exchange, queue, key } => unbind(context, exchange, queue, key).await,
        Exchange::Publish {
            exchange,
            key,
            payload,
            envelope,
        } => publish(context, exchange, key, (payload, envelope)).await,
        Exchange::List => list(context).await,
        Exchange::Bindings { exchange } => bindings(context, exchange).await,
    }
}

async fn declare(
    context: &mut Context,
    name: String,
    kind: ExchangeKind,
    alternate_exchange: String,
) -> Result<(), CliError> {
    let kind = match kind {
        ExchangeKind::Direct => ExchangeType::Direct,
        ExchangeKind::Fanout => ExchangeType::Fanout,
        ExchangeKind::Topic => ExchangeType::Topic,
        ExchangeKind::Headers => ExchangeType::Headers,
    };
    let request = DeclareRequest {
        name,
        r#type: kind.into(),
        durable: true,
        alternate_exchange,
    };
    let response = answer(context.server.exchanges().declare(request), None).await?;
    let exchange = response
        .exchange
        .ok_or_else(|| CliError::BadAnswer("no exchange in it".to_owned()))?;
    context
        .printer
        .print(&Rows(vec![printer::Exchange::from(exchange)]).show::<4>())?;
    Ok(())
}

async fn delete(context: &mut Context, name: String) -> Result<(), CliError> {
    let request = DeleteRequest { name: name.clone() };
    answer(context.server.exchanges().delete(request), None).await?;
    context.printer.print(&Changed {
        text: format!("deleted exchange {name}"),
        fields: [("exchange", name.into()), ("deleted", true.into())].into(),
    })?;
    Ok(())
}

async fn bind(context: &mut Context, exchange: String, binding: Binding) -> Result<(), CliError> {
    let queue = binding.queue.clone();
    let request = BindRequest {
        exchange: exchange.clone(),
        binding: Some(binding),
    };
    let created = answer(context.server.exchanges().bind(request), None).await?.created;
    let text = match created {
        true => format!("bound {queue} to {exchange}"),
        false => format!("{queue} was bound to {exchange} before"),
    };
    context.printer.print(&Changed {
        text,
        fields: [
            ("exchange", exchange.into()),
            ("queue", queue.into()),
            ("created", created.into()),
        ]
        .into(),
    })?;
    Ok(())
}

async fn unbind(context: &mut Context, exchange: String, queue: String, key: String) -> Result<(), CliError> {
    let request = UnbindRequest {
        exchange: exchange.clone(),
        queue: queue.clone(),
        binding_key: key,
    };
    let removed = answer(context.server.exchanges().unbind(request), None).await?.removed;
    context.printer.print(&Changed {
        text: format!("bindings of {queue} removed from {exchange}: {removed}"),
        fields: [
            ("exchange", exchange.into()),
            ("queue", queue.into()),
            ("removed", removed.into()),
        ]
        .into(),
    })?;
    Ok(())
}

async fn publish(
    context: &mut Context,
    exchange: String,
    routing_key: String,
    (payload, envelope): (OsString, Envelope),
) -> Result<(), CliError> {
    let message = Template::of(envelope)?.message(Bytes::from(payload.into_encoded_bytes()));
    let request = PublishRequest {
        exchange: exchange.clone(),
        routing_key,
        message: Some(message),
    };
    let response = answer(context.server.exchanges().publish(request), None).await?;
    context.printer.print(&Routed {
        exchange: &exchange,
        message_id: Id::read(&response.message_id)?,
        routed: response.routed,
    })?;
    Ok(())
}

async fn list(context: &mut Context) -> Result<(), CliError> {
    let mut client = context.server.exchanges();
    let mut exchanges = Vec::new();
    let mut request = ListRequest {
        page_size: PAGE,
        ..ListRequest::default()
    };
    loop {
        let page = answer(client.list(request.clone()), None).await?;
        exchanges.extend(page.exchanges.into_iter().map(printer::Exchange::from));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    if exchanges.is_empty() {
        note("no exchanges");
    }
    context.printer.print(&Rows(exchanges).show::<4>())?;
    Ok(())
}

async fn bindings(context: &mut Context, exchange: String) -> Result<(), CliError> {
    let mut client = context.server.exchanges();
    let mut bindings = Vec::new();
    let mut request = ListBindingsRequest {
        exchange,
        page_size: PAGE,
        ..ListBindingsRequest::default()
    };
    loop {
        let page = answer(client.list_bindings(request.clone()), None).await?;
        bindings.extend(page.bindings.into_iter().map(printer::Binding::from));
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    if bindings.is_empty() {
        note("no bindings");
    }
    context.printer.print(&Rows(bindings).show::<3>())?;
    Ok(())
}
