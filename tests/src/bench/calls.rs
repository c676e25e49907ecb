//! Unary calls, many at a time on one connection: the cache, and exchanges.
//!
//! Beside them stands a server that decodes the same requests and answers as long.

use std::convert::Infallible;
use std::net::SocketAddr;

use boltq_proto::exchange::v1::exchange_service_client::ExchangeServiceClient;
use boltq_proto::exchange::v1::{BindRequest, Binding, DeclareRequest, ExchangeType, PublishRequest};
use boltq_proto::kv::v1::kv_service_client::KvServiceClient;
use boltq_proto::kv::v1::{GetRequest, SetRequest};
use bytes::Bytes;
use tokio::task::JoinSet;

use super::PAYLOAD_BYTES;
use super::load::{Failure, Figure, Meter, Timing, measure};
use super::options::BenchOptions;
use super::report::{Line, Verdict};
use super::rows::{Row, median_figure, turns};
use super::target::{Target, Transport};
use crate::harness::{ServerOptions, grpc};

/// Calls that are not answered.
const IN_FLIGHT: u64 = 64;
const EXCHANGE: &str = "bench";
const BINDINGS: u64 = 1_000;
/// That the bindings lead to.
const QUEUES: u64 = 10;
/// That are set and read in turn.
const KEYS: u64 = 10_000;

/// What is called.
#[derive(Debug, Clone, Copy)]
enum Call {
    /// Each publish matches one of the bindings.
    Exchange,
    Set,
    /// All keys have values.
    Get,
}

pub(super) async fn exchange_line(options: &BenchOptions) -> Result<Line, Failure> {
    line(
        Row::Exchange,
        "topic exchange of 1,000 bindings, 64 calls at a time",
        Call::Exchange,
        options,
    )
    .await
}

pub(super) async fn kv_lines(options: &BenchOptions) -> Result<[Line; 2], Failure> {
    let set = line(Row::Kv, "cache: set, 64 calls at a time", Call::Set, options).await?;
    let get = line(Row::Kv, "cache: get, 64 calls at a time", Call::Get, options).await?;
    Ok([set, get])
}

async fn line(row: Row, work: &'static str, call: Call, options: &BenchOptions) -> Result<Line, Failure> {
    let (mut brokers, mut bares) = (Vec::new(), Vec::new());
    for run in 0..options.runs() {
        for bare in turns(run) {
            let target = if bare {
                Target::bare(Transport::Grpc)?
            } else {
                Target::broker(&ServerOptions::disk())?
            };
            if !bare {
                prepare(target.address(), call).await?;
            }
            let figure = called(&target, call, options.timing()).await?;
            if bare { &mut bares } else { &mut brokers }.push(figure);
        }
    }
    let (broker, bare) = (median_figure(&brokers), median_figure(&bares));
    let none = (String::new(), Verdict::None);
    Ok(Line::rates(row, work, &brokers, (broker, bare), none))
}

/// Bindings, or values.
async fn prepare(address: SocketAddr, call: Call) -> Result<(), Failure> {
    match call {
        Call::Set => Ok(()),
        Call::Exchange => bind(address).await,
        Call::Get => {
            let kv = KvServiceClient::new(grpc::channel(address).await?);
            let mut tasks = JoinSet::new();
            for worker in 0..IN_FLIGHT {
                let mut kv = kv.clone();
                tasks.spawn(async move {
                    for n in (worker..KEYS).step_by(IN_FLIGHT as usize) {
                        kv.set(set(n)).await?;
                    }
                    Ok::<_, Failure>(())
                });
            }
            while let Some(done) = tasks.join_next().await {
                done??;
            }
            Ok(())
        }
    }
}

async fn bind(address: SocketAddr) -> Result<(), Failure> {
    let mut exchanges = ExchangeServiceClient::new(grpc::channel(address).await?);
    let declare = DeclareRequest {
        name: EXCHANGE.to_owned(),
        r#type: ExchangeType::Topic.into(),
        ..DeclareRequest::default()
    };
    exchanges.declare(declare).await?;
    for n in 0..BINDINGS {
        let binding = Binding {
            queue: format!("bench-{}", n % QUEUES),
            binding_key: format!("shop.{n}.*"),
            ..Binding::default()
        };
        let bind = BindRequest {
            exchange: EXCHANGE.to_owned(),
            binding: Some(binding),
        };
        exchanges.bind(bind).await?;
    }
    Ok(())
}

async fn called(target: &Target, call: Call, timing: Timing) -> Result<Figure, Failure> {
    let meter = Meter::default();
    let load = repeat(target.address(), call, meter.clone());
    measure(timing, &target.stats(), &meter, load).await
}

/// Calls without end. The tasks end with the future.
async fn repeat(address: SocketAddr, call: Call, meter: Meter) -> Result<Infallible, Failure> {
    let channel = grpc::channel(address).await?;
    let mut tasks: JoinSet<Result<Infallible, Failure>> = JoinSet::new();
    for worker in 0..IN_FLIGHT {
        let (mut kv, mut exchanges) = (
            KvServiceClient::new(channel.clone()),
            ExchangeServiceClient::new(channel.clone()),
        );
        let meter = meter.clone();
        tasks.spawn(async move {
            let mut n = worker;
            loop {
                match call {
                    Call::Set => drop(kv.set(set(n)).await?),
                    Call::Get => {
                        let found = kv.get(GetRequest { key: key(n) }).await?.into_inner();
                        found.entry.ok_or("a key has no value")?;
                    }
                    Call::Exchange => {
                        let routed = exchanges.publish(publish(n)).await?.into_inner().routed;
                        if routed != 1 {
                            return Err(format!("a message went to {routed} queues").into());
                        }
                    }
                }
                meter.add(1);
                n = n.wrapping_add(IN_FLIGHT);
            }
        });
    }
    tasks.join_next().await.ok_or("there is nobody who calls")??
}

fn key(n: u64) -> String {
    format!("bench-{}", n % KEYS)
}

fn set(n: u64) -> SetRequest {
    SetRequest {
        key: key(n),
        value: payload(),
        ..SetRequest::default()
    }
}

fn publish(n: u64) -> PublishRequest {
    PublishRequest {
        exchange: EXCHANGE.to_owned(),
        routing_key: format!("shop.{}.sold", n % BINDINGS),
        message: Some(grpc::message(payload())),
    }
}

pub(super) fn payload() -> Bytes {
    Bytes::from_static(&[b'x'; PAYLOAD_BYTES])
}
