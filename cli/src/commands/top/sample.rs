//! What a server says of itself again and again.

use std::time::Duration;

use boltq_proto::admin::v1::{
    Leadership as LeadershipProto, MessageRates, Overview as OverviewProto, QueueOrder, QueueSelection,
    WatchOverviewRequest, WatchOverviewResponse,
};
use tonic::Streaming;

use super::view::View;
use crate::args::Sort;
use crate::connect::{Server, answer};
use crate::error::CliError;
use crate::printer::{Leadership, Overview, Rates, Row, Storage};

/// Most that a server gives; no screen shows more, and a filter or another order brings up the others.
const QUEUES_MAX: u32 = 1_000;

/// Overviews that a server sends.
pub(super) struct Feed {
    responses: Streaming<WatchOverviewResponse>,
    asked: QueueSelection,
    /// There were queues that it did not send.
    narrow: bool,
}

impl Feed {
    /// One now, and another one after each interval.
    pub(super) async fn open(server: &Server, interval: Duration, view: &View) -> Result<Self, CliError> {
        let asked = selection(view);
        let request = WatchOverviewRequest {
            interval: prost_types::Duration::try_from(interval).ok(),
            queues: Some(asked.clone()),
        };
        Ok(Self {
            responses: answer(server.admin().watch_overview(request), None).await?,
            asked,
            narrow: false,
        })
    }

    /// The next one, of the server at this address.
    pub(super) async fn next(&mut self, addr: &str) -> Result<Overview, CliError> {
        let response = self.responses.message().await?;
        let response = response.ok_or_else(|| super::ended("the server ended the overview"))?;
        let overview = overview(response.overview.unwrap_or_default(), addr);
        self.narrow = overview.more_queues;
        Ok(overview)
    }

    /// Whether it sends all that is wanted. If there is nothing that it leaves out, what it sends only has to be arranged.
    pub(super) fn serves(&self, view: &View) -> bool {
        let wanted = selection(view);
        wanted == self.asked || (self.asked.name_contains.is_empty() && !self.narrow)
    }
}

fn selection(view: &View) -> QueueSelection {
    let order = match view.sort {
        Sort::Depth => QueueOrder::Depth,
        Sort::Rate => QueueOrder::Change,
        Sort::Name => QueueOrder::Name,
    };
    QueueSelection {
        max: QUEUES_MAX,
        order: order.into(),
        name_contains: view.filter.clone(),
    }
}

fn overview(overview: OverviewProto, server: &str) -> Overview {
    let storage = overview.storage.unwrap_or_default();
    let more_queues = overview.matching > overview.queues.len() as u64;
    let rows = overview.queues.into_iter().map(|queue| Row {
        name: queue.name,
        ready: queue.ready,
        leased: queue.leased,
        delayed: queue.delayed,
        dead_letters: queue.dead_letters,
        consumers: queue.consumers,
        change_per_second: queue.change,
    });
    Overview {
        server: server.to_owned(),
        version: overview.version,
        uptime_seconds: overview.uptime.unwrap_or_default().seconds,
        storage: Storage {
            mode: storage.mode,
            bytes: storage.bytes,
            writable: storage.writable,
        },
        cluster: overview.leadership.map(leadership),
        ready: overview.ready,
        leased: overview.leased,
        delayed: overview.delayed,
        dead_letters: overview.dead_letters,
        per_second: overview.rates.map(rates),
        queue_count: overview.queue_count,
        queues: rows.collect(),
        more_queues,
    }
}

fn leadership(leadership: LeadershipProto) -> Leadership {
    Leadership {
        node: leadership.node_id,
        leader: Some(leadership.leader_id).filter(|leader| !leader.is_empty()),
    }
}

fn rates(rates: MessageRates) -> Rates {
    Rates {
        published: rates.published,
        consumed: rates.consumed,
        acked: rates.acked,
        nacked: rates.nacked,
        expired: rates.expired,
        dead_lettered: rates.dead_lettered,
    }
}

#[cfg(test)]
mod tests {
    use boltq_proto::admin::v1::QueueOverview;

    use super::*;

    #[test]
    fn what_a_server_does_not_know_yet_is_nothing() {
        let first = OverviewProto {
            queues: vec![QueueOverview {
                name: "q".to_owned(),
                ready: 3,
                ..QueueOverview::default()
            }],
            matching: 2,
            leadership: Some(LeadershipProto {
                node_id: "n1".to_owned(),
                leader_id: String::new(),
            }),
            ..OverviewProto::default()
        };
        let mut first = overview(first, "a:1");
        let leader = first.cluster.take().unwrap();
        assert_eq!((leader.node.as_str(), leader.leader), ("n1", None));
        assert_eq!((first.per_second, first.more_queues), (None, true));
        assert_eq!((first.queues[0].depth(), first.queues[0].change_per_second), (3, None));
    }
}
