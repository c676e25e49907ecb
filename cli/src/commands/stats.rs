//! `boltq stats`

use boltq_proto::admin::v1::{GetStatsRequest, GetStatsResponse, StorageStats};

use super::Context;
use crate::args::Current;
use crate::connect::answer;
use crate::error::CliError;
use crate::printer::{Stats, Storage};

pub(super) async fn run(context: &mut Context, Current { linearizable }: Current) -> Result<(), CliError> {
    let mut admin = context.server.admin();
    let stats = answer(admin.get_stats(GetStatsRequest { linearizable }), None).await?;
    context.printer.print(&Stats::from(stats))?;
    Ok(())
}

impl From<GetStatsResponse> for Stats {
    fn from(stats: GetStatsResponse) -> Self {
        let GetStatsResponse {
            queues,
            dead_letters,
            pending,
            delayed,
            published,
            consumed,
            acked,
            nacked,
            expired,
            dead_lettered,
            dropped,
            rejected,
            uptime,
            version,
            storage,
        } = stats;
        let StorageStats { mode, bytes, writable } = storage.unwrap_or_default();
        Self {
            queues,
            dead_letters,
            pending,
            delayed,
            published,
            consumed,
            acked,
            nacked,
            expired,
            dead_lettered,
            dropped,
            rejected,
            uptime: uptime.unwrap_or_default(),
            version,
            storage: Storage { mode, bytes, writable },
        }
    }
}
