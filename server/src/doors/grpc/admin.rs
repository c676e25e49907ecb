//! `boltq.admin.v1.AdminService`.

use std::pin::Pin;

use boltq_proto::admin::v1::admin_service_server::AdminService;
use boltq_proto::admin::v1::{
    GetOverviewRequest, GetOverviewResponse, GetStatsRequest, GetStatsResponse, WatchOverviewRequest,
    WatchOverviewResponse,
};
use futures_util::Stream;
use tonic::{Request, Response, Status};

use super::overview::{Observed, Watch, storage, watch};

pub(super) struct AdminDoor {
    observed: Observed,
}

impl AdminDoor {
    pub(super) fn new(observed: Observed) -> Self {
        Self { observed }
    }
}

#[tonic::async_trait]
impl AdminService for AdminDoor {
    async fn get_stats(&self, request: Request<GetStatsRequest>) -> Result<Response<GetStatsResponse>, Status> {
        let queues = &self.observed.queues;
        queues.begin_look(request.into_inner().linearizable).await?;
        let stats = queues.stats();
        let nacked = stats.failed_attempts();
        let storage = storage(stats.storage);
        Ok(Response::new(GetStatsResponse {
            queues: stats
                .queues
                .into_iter()
                .map(|(name, queue)| (name, queue.ready))
                .collect(),
            dead_letters: stats
                .dead_letters
                .into_iter()
                .map(|(name, queue)| (name, queue.ready))
                .collect(),
            pending: stats.pending,
            delayed: stats.delayed,
            published: stats.totals.published,
            consumed: stats.consumed,
            acked: stats.totals.acked,
            nacked,
            expired: stats.totals.expired,
            dead_lettered: stats.totals.dead_lettered,
            dropped: stats.totals.dropped,
            rejected: stats.totals.rejected,
            uptime: prost_types::Duration::try_from(stats.uptime).ok(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            storage: Some(storage),
        }))
    }

    async fn get_overview(
        &self,
        request: Request<GetOverviewRequest>,
    ) -> Result<Response<GetOverviewResponse>, Status> {
        let request = request.into_inner();
        // A node that was removed from its cluster shows that it was.
        if request.linearizable {
            self.observed.queues.begin_look(true).await?;
        }
        let overview = Watch::new(self.observed.clone(), request.queues)?.look();
        Ok(Response::new(GetOverviewResponse {
            overview: Some(overview),
        }))
    }

    type WatchOverviewStream = Pin<Box<dyn Stream<Item = Result<WatchOverviewResponse, Status>> + Send>>;

    async fn watch_overview(
        &self,
        request: Request<WatchOverviewRequest>,
    ) -> Result<Response<Self::WatchOverviewStream>, Status> {
        let watched = watch(self.observed.clone(), request.into_inner())?;
        Ok(Response::new(Box::pin(watched)))
    }
}
