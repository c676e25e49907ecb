//! `boltq.admin.v1.AdminService`.

use boltq_proto::admin::v1::admin_service_server::AdminService;
use boltq_proto::admin::v1::{GetStatsRequest, GetStatsResponse, StorageStats};
use tonic::{Request, Response, Status};

use crate::service::Queues;

pub(super) struct AdminDoor {
    queues: Queues,
}

impl AdminDoor {
    pub(super) fn new(queues: Queues) -> Self {
        Self { queues }
    }
}

#[tonic::async_trait]
impl AdminService for AdminDoor {
    async fn get_stats(&self, request: Request<GetStatsRequest>) -> Result<Response<GetStatsResponse>, Status> {
        self.queues.begin_look(request.into_inner().linearizable).await?;
        let stats = self.queues.stats();
        let (storage, nacked) = (stats.storage, stats.failed_attempts());
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
            storage: Some(StorageStats {
                mode: if storage.disk { "disk" } else { "memory" }.to_owned(),
                bytes: storage.bytes,
                writable: storage.writable,
            }),
        }))
    }
}
