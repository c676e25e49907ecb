//! Which partition a key belongs to, and which group a partition belongs to. Both are fixed for ever: clients and data
//! directories rely on them.

use boltq_core::KeyHash;

/// The partition of a topic that records with this key go to: FNV-1a 64 of the key modulo the number of partitions. Without a
/// key, and with one partition, it is 0.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    if key.is_empty() {
        return 0;
    }
    remainder(KeyHash::of(key).0, partitions)
}

/// Which of `groups` groups, counted from 0, a partition of a topic belongs to. That of partition 0 is the topic's *home*.
///
/// The partitions of a topic are in groups that follow each other, so that they are spread as evenly as they can be. Where they
/// begin is FNV-1a 64 of the name put through the last steps of MurmurHash3: the low bits of the former alone hang on the low bits
/// of each letter.
#[must_use]
pub fn group_of(topic: &str, partition: u32, groups: u32) -> u32 {
    let mut hash = KeyHash::of(topic.as_bytes()).0;
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^= hash >> 33;
    let home = u64::from(remainder(hash, groups));
    remainder(home + u64::from(partition), groups)
}

/// 0 if there is nothing to choose from.
fn remainder(hash: u64, count: u32) -> u32 {
    let remainder = hash.checked_rem(u64::from(count)).unwrap_or(0);
    u32::try_from(remainder).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_partitions_of_the_protocol() {
        for (key, of_16, of_8, of_5) in [
            ("alice", 7, 7, 3),
            ("bob", 4, 4, 2),
            ("alice:bob", 6, 6, 4),
            ("team-42", 5, 5, 2),
            ("conv-0001", 1, 1, 2),
            ("général", 15, 7, 1),
        ] {
            let of = |partitions| partition_of(key.as_bytes(), partitions);
            assert_eq!((of(16), of(8), of(5), of(1), of(0)), (of_16, of_8, of_5, 0, 0), "{key}");
        }
        assert_eq!(partition_of(b"", 16), 0);
    }

    /// They decide where data is: they never change.
    #[test]
    fn partitions_have_the_groups_that_they_had() {
        let of = |topic, partition| group_of(topic, partition, 8);
        let homes = ["", "a", "chat.direct.ana:ben", "chat.inbox.ana", "chat.group.team-42"].map(|topic| of(topic, 0));
        assert_eq!(homes, [6, 3, 0, 5, 0]);
        assert_eq!([0, 1, 2, 7, 8].map(|partition| of("a", partition)), [3, 4, 5, 2, 3]);
        assert_eq!((group_of("a", 3, 1), group_of("a", u32::MAX, 0)), (0, 0));
    }

    #[test]
    fn topics_are_spread_evenly() {
        for name in ["chat.inbox.user-", "chat.direct.a:b", "t", "orders.eu."] {
            let mut counts = [0; 8];
            for number in 0..8_000 {
                counts[group_of(&format!("{name}{number}"), 0, 8) as usize] += 1;
            }
            assert!(
                counts.iter().all(|count| (850..1_150).contains(count)),
                "{name}: {counts:?}"
            );
        }
    }
}
