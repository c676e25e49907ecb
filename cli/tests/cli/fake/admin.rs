//! What operators look at: statistics and overviews.

use std::collections::BTreeMap;
use std::time::Duration;

use boltq_proto::admin::v1::admin_service_server::AdminService;
use boltq_proto::admin::v1::{
    GetOverviewRequest, GetOverviewResponse, GetStatsRequest, GetStatsResponse, MessageRates, Overview, QueueOverview,
    QueueSelection, StorageStats, WatchOverviewRequest, WatchOverviewResponse,
};
use tokio::sync::mpsc::unbounded_channel;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status};

use super::{Answer, Service};

fn storage() -> Option<StorageStats> {
    Some(StorageStats {
        mode: "disk".into(),
        bytes: 33_554_432,
        writable: true,
    })
}

fn uptime() -> Option<prost_types::Duration> {
    Some(prost_types::Duration {
        seconds: 12,
        nanos: 500_000_000,
    })
}

/// Of the queues `a`, `b` and `c`, which do nothing. Only the first one knows of none before.
fn overview(selection: &QueueSelection, first: bool) -> Overview {
    let change = (!first).then_some(0.0);
    let queue = |name: &&str| QueueOverview {
        name: (*name).to_owned(),
        ready: 3,
        dead_letters: 1,
        change,
        ..QueueOverview::default()
    };
    let there = ["a", "b", "c"];
    let chosen = there.iter().filter(|name| name.contains(&selection.name_contains));
    let queues: Vec<QueueOverview> = chosen.map(queue).collect();
    Overview {
        health: "ok".into(),
        version: "0.1.0".into(),
        uptime: uptime(),
        storage: storage(),
        queue_count: 3,
        ready: 3,
        dead_letters: 1,
        rates: (!first).then(MessageRates::default),
        matching: queues.len() as u64,
        queues,
        ..Overview::default()
    }
}

#[tonic::async_trait]
impl AdminService for Service {
    type WatchOverviewStream = UnboundedReceiverStream<Result<WatchOverviewResponse, Status>>;

    async fn get_stats(&self, request: Request<GetStatsRequest>) -> Answer<GetStatsResponse> {
        self.looked(request.into_inner().linearizable);
        Ok(Response::new(GetStatsResponse {
            queues: BTreeMap::from([("email_jobs".to_owned(), 3)]),
            dead_letters: BTreeMap::from([("email_jobs_dead_letter".to_owned(), 1)]),
            published: 4,
            uptime: uptime(),
            version: "0.1.0".into(),
            storage: storage(),
            ..GetStatsResponse::default()
        }))
    }

    async fn get_overview(&self, request: Request<GetOverviewRequest>) -> Answer<GetOverviewResponse> {
        let request = request.into_inner();
        self.looked(request.linearizable);
        let overview = Some(overview(&request.queues.unwrap_or_default(), true));
        Ok(Response::new(GetOverviewResponse { overview }))
    }

    async fn watch_overview(&self, request: Request<WatchOverviewRequest>) -> Answer<Self::WatchOverviewStream> {
        let request = request.into_inner();
        let (responses, stream) = unbounded_channel();
        let interval = request.interval.and_then(|interval| Duration::try_from(interval).ok());
        tokio::spawn(async move {
            let selection = request.queues.unwrap_or_default();
            let mut every = tokio::time::interval(interval.unwrap_or(Duration::from_secs(1)));
            let mut first = true;
            while !responses.is_closed() {
                every.tick().await;
                let overview = Some(overview(&selection, first));
                first = false;
                let _ = responses.send(Ok(WatchOverviewResponse { overview }));
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(stream)))
    }
}
