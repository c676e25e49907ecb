//! `boltq kv …`

use std::os::unix::ffi::OsStringExt;
use std::pin::pin;

use boltq_proto::kv::v1::set_request::Condition;
use boltq_proto::kv::v1::watch_response::Event;
use boltq_proto::kv::v1::{
    DeleteRequest, ExistsRequest, ExpireRequest, FlushRequest, GetRequest, GetStatsRequest, IncrementRequest,
    IncrementResponse, KeysRequest, KeysResponse, SetRequest, WatchRequest,
};

use super::follow::interrupted;
use super::{Context, note, wire};
use crate::args::{Expire, Key, Kv, Set};
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{
    KvChange, KvDeleted, KvEntry, KvExists, KvExpires, KvFlushed, KvIncremented, KvKey, KvSet, KvStats,
};

/// Keys asked for at a time.
const PAGE_KEYS: u32 = 1_000;

pub(super) async fn run(context: &mut Context, kv: Kv) -> Result<(), CliError> {
    match kv {
        Kv::Get(Key { key }) => get(context, key).await,
        Kv::Set(set) => self::set(context, set).await,
        Kv::Del {
            key: Key { key },
            if_version,
        } => delete(context, DeleteRequest { key, if_version }).await,
        Kv::Exists(Key { key }) => exists(context, key).await,
        Kv::Keys { pattern } => keys(context, &pattern).await,
        Kv::Expire(expire) => self::expire(context, expire).await,
        Kv::Incr { key: Key { key }, by } => increment(context, key, by).await,
        Kv::Flush => flush(context).await,
        Kv::Stats => stats(context).await,
        Kv::Watch { pattern, initial, max } => watch(context, WatchRequest { pattern, initial }, max).await,
    }
}

async fn get(context: &mut Context, key: String) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let request = GetRequest { key: key.clone() };
    let entry = answer(client.get(request), None).await?.entry;
    let entry = entry.ok_or(CliError::NoValue { key })?;
    context.printer.print(&KvEntry::from(entry))?;
    Ok(())
}

async fn set(context: &mut Context, set: Set) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let key = set.key.key;
    let condition = match (set.if_absent, set.if_present, set.if_version) {
        (true, _, _) => Some(Condition::IfAbsent(true)),
        (_, true, _) => Some(Condition::IfPresent(true)),
        (_, _, version) => version.map(Condition::IfVersion),
    };
    let request = SetRequest {
        key: key.clone(),
        value: set.value.into_vec().into(),
        ttl: set.ttl.map(wire).transpose()?,
        condition,
    };
    let version = answer(client.set(request), None).await?.version;
    context.printer.print(&KvSet { key, version })?;
    Ok(())
}

async fn delete(context: &mut Context, request: DeleteRequest) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let key = request.key.clone();
    let deleted = answer(client.delete(request), None).await?.deleted;
    context.printer.print(&KvDeleted { key, deleted })?;
    Ok(())
}

async fn exists(context: &mut Context, key: String) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let request = ExistsRequest { key: key.clone() };
    let exists = answer(client.exists(request), None).await?.exists;
    context.printer.print(&KvExists { key, exists })?;
    Ok(())
}

async fn keys(context: &mut Context, pattern: &str) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let mut page_token = String::new();
    let mut listed = false;
    loop {
        let request = KeysRequest {
            pattern: pattern.to_owned(),
            page_size: PAGE_KEYS,
            page_token,
        };
        let KeysResponse { keys, next_page_token } = answer(client.keys(request), None).await?;
        listed |= !keys.is_empty();
        for key in keys {
            context.printer.print(&KvKey { key })?;
        }
        if next_page_token.is_empty() {
            break;
        }
        page_token = next_page_token;
    }
    if !listed {
        note("no keys");
    }
    Ok(())
}

async fn expire(context: &mut Context, expire: Expire) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let key = expire.key.key;
    let request = ExpireRequest {
        key: key.clone(),
        ttl: Some(wire(expire.ttl)?),
    };
    let found = answer(client.expire(request), None).await?.found;
    context.printer.print(&KvExpires { key, found })?;
    Ok(())
}

async fn increment(context: &mut Context, key: String, by: i64) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let request = IncrementRequest {
        key: key.clone(),
        delta: Some(by),
    };
    let IncrementResponse { value, version } = answer(client.increment(request), None).await?;
    context.printer.print(&KvIncremented { key, value, version })?;
    Ok(())
}

async fn flush(context: &mut Context) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let removed = answer(client.flush(FlushRequest {}), None).await?.removed;
    context.printer.print(&KvFlushed { removed })?;
    Ok(())
}

async fn stats(context: &mut Context) -> Result<(), CliError> {
    let mut client = context.server.kv();
    let stats = answer(client.get_stats(GetStatsRequest {}), None).await?;
    context.printer.print(&KvStats::from(stats))?;
    Ok(())
}

async fn watch(context: &mut Context, request: WatchRequest, max: Option<u64>) -> Result<(), CliError> {
    let mut interrupted = pin!(interrupted()?);
    let mut events = answer(context.server.kv().watch(request), None).await?;
    let mut left = max.unwrap_or(u64::MAX);
    while left > 0 {
        let event = tokio::select! {
            biased;
            () = &mut interrupted => break,
            event = events.message() => event?,
        };
        let event = event.ok_or_else(|| CliError::Lost {
            why: "the server ended the stream".to_owned(),
        })?;
        left -= 1;
        let change = match event.event {
            Some(Event::Put(entry)) => KvChange::Put(entry.into()),
            Some(Event::Removed(removed)) => KvChange::Removed {
                key: removed.key,
                version: removed.version,
            },
            Some(Event::Flushed(flushed)) => KvChange::Flushed {
                version: flushed.version,
            },
            Some(Event::Ready(ready)) => KvChange::Ready { version: ready.version },
            None => return Err(CliError::BadAnswer("an event of an unknown kind".to_owned())),
        };
        context.printer.print(&change)?;
        context.printer.flush()?;
    }
    Ok(())
}
