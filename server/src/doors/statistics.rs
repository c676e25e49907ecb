//! The statistics as the binary protocol and the admin port show them: names in PascalCase, all five always there.

use super::json::{put_number, put_string};
use crate::service::{QueueStats, Stats};

pub(super) fn put(out: &mut Vec<u8>, stats: &Stats) {
    out.extend_from_slice(br#"{"Queues":"#);
    put_ready(out, &stats.queues);
    out.extend_from_slice(br#","Topics":"#);
    put_counts(out, stats.topics.iter().map(|(name, count)| (name.as_str(), *count)));
    out.extend_from_slice(br#","DeadLetters":"#);
    put_ready(out, &stats.dead_letters);
    out.extend_from_slice(br#","PendingCount":"#);
    put_number(out, stats.pending);
    out.extend_from_slice(br#","DelayedCount":"#);
    put_number(out, stats.delayed);
    out.push(b'}');
}

fn put_ready(out: &mut Vec<u8>, queues: &[(String, QueueStats)]) {
    put_counts(out, queues.iter().map(|(name, stats)| (name.as_str(), stats.ready)));
}

fn put_counts<'n>(out: &mut Vec<u8>, counts: impl Iterator<Item = (&'n str, u64)>) {
    out.push(b'{');
    for (n, (name, count)) in counts.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        put_string(out, name);
        out.push(b':');
        put_number(out, count);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(queues: &[(&str, u64)]) -> String {
        let stats = |ready| QueueStats {
            ready,
            leased: 7,
            delayed: 8,
        };
        let queues: Vec<_> = queues
            .iter()
            .map(|(name, count)| ((*name).to_owned(), stats(*count)))
            .collect();
        let mut out = Vec::new();
        put_ready(&mut out, &queues);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_ready_messages_are_shown_by_queue() {
        assert_eq!(ready(&[]), "{}");
        assert_eq!(ready(&[("a\"b", 0), ("c", 12)]), r#"{"a\"b":0,"c":12}"#);
    }
}
