//! What a server says of itself at one moment, and what changed since another.

use std::collections::HashMap;
use std::time::Instant;

use boltq_proto::admin::v1::{GetStatsRequest, GetStatsResponse};
use boltq_proto::cluster::v1::{GetStatusRequest, GetStatusResponse};
use boltq_proto::queue::v1::ListQueuesRequest;

use crate::connect::{Server, answer};
use crate::error::CliError;
use crate::printer::{Leadership, Overview, Queue, Rates, Row, Storage};

/// Queues asked for at a time.
const PAGE_QUEUES: u32 = 1_000;
/// Looked at; a screen shows a few, and asking for all of a million each second would be load.
const QUEUES_MAX: usize = 10_000;
/// The group of the queues.
const QUEUE_GROUP: &str = "queue";

/// One look.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    at: Instant,
    stats: GetStatsResponse,
    queues: Vec<Queue>,
    /// There are more than were asked for.
    more: bool,
    cluster: Option<Leadership>,
}

impl Sample {
    pub(super) async fn take(server: &Server) -> Result<Self, CliError> {
        let stats = answer(server.admin().get_stats(GetStatsRequest::default()), None).await?;
        let (queues, more) = queues(server).await?;
        let status = answer(server.cluster().get_status(GetStatusRequest {}), None).await?;
        Ok(Self {
            at: Instant::now(),
            stats,
            queues,
            more,
            cluster: leader(status),
        })
    }

    /// This look, with what changed since `last`.
    pub(super) fn since(&self, last: Option<&Self>, server: &str) -> Overview {
        let stats = &self.stats;
        let storage = stats.storage.clone().unwrap_or_default();
        Overview {
            server: server.to_owned(),
            version: stats.version.clone(),
            uptime_seconds: stats.uptime.unwrap_or_default().seconds,
            storage: Storage {
                mode: storage.mode,
                bytes: storage.bytes,
                writable: storage.writable,
            },
            cluster: self.cluster.clone(),
            ready: stats.queues.values().sum(),
            leased: stats.pending,
            delayed: stats.delayed,
            dead_letters: stats.dead_letters.values().sum(),
            per_second: last.map(|last| self.rates_since(last)),
            queues: self.rows_since(last),
            more_queues: self.more,
        }
    }

    fn seconds_since(&self, last: &Self) -> f64 {
        self.at.saturating_duration_since(last.at).as_secs_f64().max(1e-3)
    }

    fn rates_since(&self, last: &Self) -> Rates {
        let seconds = self.seconds_since(last);
        // A server that was started again counts some of them from 0.
        let rate = |of: fn(&GetStatsResponse) -> u64| of(&self.stats).saturating_sub(of(&last.stats)) as f64 / seconds;
        Rates {
            published: rate(|stats| stats.published),
            consumed: rate(|stats| stats.consumed),
            acked: rate(|stats| stats.acked),
            nacked: rate(|stats| stats.nacked),
            expired: rate(|stats| stats.expired),
            dead_lettered: rate(|stats| stats.dead_lettered),
        }
    }

    fn rows_since(&self, last: Option<&Self>) -> Vec<Row> {
        let before: Option<(HashMap<&str, u64>, f64)> = last.map(|last| {
            let depths = last.queues.iter().map(|queue| (queue.name.as_str(), queue.depth()));
            (depths.collect(), self.seconds_since(last))
        });
        let change = |queue: &Queue| {
            let (depths, seconds) = before.as_ref()?;
            // A queue that was not there had nothing.
            let was = depths.get(queue.name.as_str()).copied().unwrap_or_default();
            Some((queue.depth() as f64 - was as f64) / seconds)
        };
        let rows = self.queues.iter().map(|queue| Row {
            change_per_second: change(queue),
            queue: queue.clone(),
        });
        rows.collect()
    }
}

/// The first queues by name, and whether there are more.
async fn queues(server: &Server) -> Result<(Vec<Queue>, bool), CliError> {
    let mut client = server.queues();
    let (mut queues, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListQueuesRequest {
            page_size: PAGE_QUEUES,
            page_token,
            ..ListQueuesRequest::default()
        };
        let page = answer(client.list_queues(request), None).await?;
        queues.extend(page.queues.into_iter().map(Queue::from));
        if page.next_page_token.is_empty() {
            return Ok((queues, false));
        }
        if queues.len() >= QUEUES_MAX {
            return Ok((queues, true));
        }
        page_token = page.next_page_token;
    }
}

fn leader(status: GetStatusResponse) -> Option<Leadership> {
    if !status.enabled {
        return None;
    }
    let node = status.node.unwrap_or_default().node_id;
    let group = status.groups.into_iter().find(|group| group.name == QUEUE_GROUP);
    let leader = group.map(|group| group.leader_id).filter(|leader| !leader.is_empty());
    Some(Leadership { node, leader })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use boltq_proto::cluster::v1::{Group, Node};

    use super::*;

    fn sample(at: Instant, published: u64, queues: &[(&str, u64)]) -> Sample {
        Sample {
            at,
            stats: GetStatsResponse {
                published,
                ..GetStatsResponse::default()
            },
            queues: queues
                .iter()
                .map(|(name, ready)| Queue {
                    name: (*name).to_owned(),
                    ready: *ready,
                    leased: 0,
                    delayed: 0,
                    dead_letters: 0,
                    consumers: 0,
                    settings: crate::printer::Settings::default(),
                })
                .collect(),
            more: false,
            cluster: None,
        }
    }

    #[test]
    fn rates_are_what_changed_by_the_time_that_it_took() {
        let start = Instant::now();
        let first = sample(start, 100, &[("a", 10), ("b", 10)]);
        let second = sample(start + Duration::from_secs(2), 300, &[("a", 30), ("b", 0), ("new", 4)]);
        let overview = second.since(Some(&first), "a:1");
        assert_eq!(overview.per_second.unwrap().published, 100.0);
        let changes: Vec<_> = overview.queues.iter().map(|row| row.change_per_second).collect();
        assert_eq!(changes, [Some(10.0), Some(-5.0), Some(2.0)]);
        assert_eq!(first.since(None, "a:1").per_second, None);
        assert_eq!(first.since(None, "a:1").queues[0].change_per_second, None);
        // A server that was started again.
        let third = sample(start + Duration::from_secs(3), 0, &[]);
        assert_eq!(third.since(Some(&second), "a:1").per_second.unwrap().published, 0.0);
    }

    #[test]
    fn the_leader_is_that_of_the_queues() {
        let group = |name: &str, leader: &str| Group {
            name: name.to_owned(),
            leader_id: leader.to_owned(),
            ..Group::default()
        };
        let mut status = GetStatusResponse {
            enabled: true,
            node: Some(Node {
                node_id: "n1".to_owned(),
                ..Node::default()
            }),
            groups: vec![group("meta", "n3"), group("queue", "n2")],
            ..GetStatusResponse::default()
        };
        let led_by = |leader: Option<&str>| {
            let leader = leader.map(str::to_owned);
            Some(Leadership {
                node: "n1".to_owned(),
                leader,
            })
        };
        assert_eq!(leader(status.clone()), led_by(Some("n2")));
        status.groups[1].leader_id.clear();
        assert_eq!(leader(status.clone()), led_by(None));
        status.enabled = false;
        assert_eq!(leader(status), None);
    }
}
