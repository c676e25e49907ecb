//! Every route of the admin port: method, path, where it is answered, and by what.
//!
//! `openapi.json` describes the same routes, and a test compares the two.

use axum::routing::{MethodRouter, any, get, post};

use super::router::AdminDoor;
use super::{cache, cluster, dead_letters, exchange, health, metrics, openapi, overview, queue, queues, stats, topic};

/// One route.
pub(super) struct Route {
    pub(super) verb: Verb,
    pub(super) path: &'static str,
    pub(super) place: Place,
    pub(super) handler: fn() -> MethodRouter<AdminDoor>,
}

/// Which methods it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    /// Whatever comes.
    Any,
    /// GET, and HEAD, which is the same without the body.
    Get,
    /// GET alone: it takes something, so that an answer without its body would lose that.
    Take,
    /// POST.
    Post,
}

/// Which node answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The one that is asked.
    Here,
    /// The leader of the queues.
    Leader,
    /// The same, if there is a cache.
    Cache,
}

macro_rules! handler {
    (Any, $handler:path) => {
        any($handler)
    };
    (Post, $handler:path) => {
        post($handler)
    };
    ($get:ident, $handler:path) => {
        get($handler)
    };
}

macro_rules! routes {
    ($($verb:ident $path:literal $place:ident $handler:path;)*) => {
        &[$(Route {
            verb: Verb::$verb,
            path: $path,
            place: Place::$place,
            handler: || handler!($verb, $handler),
        }),*]
    };
}

pub(super) static ROUTES: &[Route] = routes! {
    Any  "/health"               Here   health::alive;
    Any  "/livez"                Here   health::alive;
    Any  "/readyz"               Here   health::ready;
    Get  "/overview"             Here   overview::overview;
    Get  "/stats"                Here   stats::stats;
    Any  "/metrics"              Here   metrics::metrics;
    Get  "/openapi.json"         Here   openapi::document;
    Post "/publish"              Leader queue::publish;
    Take "/consume"              Leader queue::consume;
    Post "/ack"                  Leader queue::ack;
    Post "/nack"                 Leader queue::nack;
    Get  "/queues"               Here   queues::list;
    Get  "/queues/peek"          Here   queues::peek;
    Post "/queues/purge"         Leader queues::purge;
    Get  "/dead-letters"         Here   dead_letters::list;
    Post "/dead-letters/purge"   Leader dead_letters::purge;
    Post "/dead-letters/redrive" Leader dead_letters::redrive;
    Get  "/topics"               Here   topic::list;
    Post "/publish/topic"        Leader topic::publish;
    Take "/subscribe"            Leader topic::subscribe;
    Post "/exchange/declare"     Leader exchange::declare;
    Post "/exchange/delete"      Leader exchange::delete;
    Post "/exchange/bind"        Leader exchange::bind;
    Post "/exchange/unbind"      Leader exchange::unbind;
    Post "/exchange/publish"     Leader exchange::publish;
    Get  "/cache/get"            Cache  cache::get;
    Post "/cache/set"            Cache  cache::set;
    Post "/cache/del"            Cache  cache::delete;
    Get  "/cache/keys"           Cache  cache::keys;
    Get  "/cache/exists"         Cache  cache::exists;
    Post "/cache/expire"         Cache  cache::expire;
    Post "/cache/incr"           Cache  cache::increment;
    Post "/cache/flush"          Cache  cache::flush;
    Get  "/cache/stats"          Here   cache::stats;
    Get  "/cache/entries"        Cache  cache::entries;
    Get  "/cluster/status"       Here   cluster::status;
    Post "/cluster/join"         Here   cluster::join;
    Post "/cluster/leave"        Here   cluster::leave;
    Post "/cluster/transfer"     Here   cluster::transfer;
};
