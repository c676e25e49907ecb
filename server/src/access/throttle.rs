//! Failed attempts of an address: a bucket of tokens for each, of which an attempt that fails takes one.
//!
//! The bucket of an address holds what it may fail in a minute, and is filled evenly. While it is empty, what is shown from
//! that address is not looked at: so keys cannot be guessed faster than the bucket fills, however many connections do it.
//! Connections that have shown a right key are not asked again, so that a neighbour behind the same address cannot keep them
//! out.
//!
//! Of IPv6, the first 64 bits are one address, as that is what one customer has. No more than [`ADDRESSES_MAX`] addresses are
//! remembered. Full buckets are forgotten, since they say nothing; if none of them is full, those who come anew share one.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// About 1 MiB.
const ADDRESSES_MAX: usize = 16_384;
const MINUTE: Duration = Duration::from_secs(60);

/// Those of all addresses. The time is handed in, and goes forward.
#[derive(Debug, Default)]
pub(super) struct Throttle {
    buckets: HashMap<Address, Bucket>,
    /// When there was no room for another address.
    swept: Option<Instant>,
}

/// What counts as one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Address {
    One(IpAddr),
    /// All for whom there is no room.
    Others,
}

/// So many attempts have failed, as of then.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    failed: f64,
    at: Instant,
}

impl Bucket {
    fn failed(&self, per_minute: u32, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.failed - passed * f64::from(per_minute) / MINUTE.as_secs_f64()).max(0.0)
    }
}

impl Throttle {
    /// How long an address has to wait until it may try again; `None`: it may.
    pub(super) fn wait(&self, address: IpAddr, per_minute: u32, now: Instant) -> Option<Duration> {
        let bucket = self.bucket(network(address))?;
        let excess = bucket.failed(per_minute, now) - f64::from(per_minute) + 1.0;
        (per_minute > 0 && excess > 0.0).then(|| MINUTE.mul_f64(excess / f64::from(per_minute)))
    }

    /// An attempt failed. Returns whether it is the one that empties the bucket.
    pub(super) fn fail(&mut self, address: IpAddr, per_minute: u32, now: Instant) -> bool {
        if per_minute == 0 {
            return false;
        }
        let address = self.place(network(address), per_minute, now);
        let bucket = self.buckets.entry(address).or_insert(Bucket { failed: 0.0, at: now });
        let before = bucket.failed(per_minute, now);
        let failed = (before + 1.0).min(f64::from(per_minute));
        *bucket = Bucket { failed, at: now };
        let empty = f64::from(per_minute) - 1.0;
        before <= empty && failed > empty
    }

    fn bucket(&self, address: IpAddr) -> Option<&Bucket> {
        let one = self.buckets.get(&Address::One(address));
        one.or_else(|| {
            self.buckets
                .get(&Address::Others)
                .filter(|_| self.buckets.len() > ADDRESSES_MAX)
        })
    }

    /// Where failures of an address are counted.
    fn place(&mut self, address: IpAddr, per_minute: u32, now: Instant) -> Address {
        let one = Address::One(address);
        if self.buckets.len() < ADDRESSES_MAX || self.buckets.contains_key(&one) {
            return one;
        }
        // Looking through all of them for each of many strangers would be what they want.
        if self.swept.is_none_or(|at| now.saturating_duration_since(at) >= MINUTE) {
            self.swept = Some(now);
            self.buckets.retain(|_, bucket| bucket.failed(per_minute, now) > 0.0);
            if self.buckets.len() < ADDRESSES_MAX {
                return one;
            }
        }
        Address::Others
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            const NETWORK: u128 = !0 << 64;
            Ipv6Addr::from_bits(address.to_bits() & NETWORK).into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PER_MINUTE: u32 = 6;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn waits(throttle: &Throttle, of: &str, now: Instant) -> Option<Duration> {
        throttle.wait(address(of), PER_MINUTE, now)
    }

    #[test]
    fn an_address_may_fail_so_often_in_a_minute_and_then_as_the_bucket_fills() {
        let (mut throttle, start) = (Throttle::default(), Instant::now());
        let mut emptied = Vec::new();
        for _ in 0..PER_MINUTE {
            assert_eq!(waits(&throttle, "10.0.0.1", start), None);
            emptied.push(throttle.fail(address("10.0.0.1"), PER_MINUTE, start));
        }
        assert_eq!(emptied, [false, false, false, false, false, true]);
        assert_eq!(waits(&throttle, "10.0.0.1", start), Some(Duration::from_secs(10)));
        assert_eq!(waits(&throttle, "10.0.0.2", start), None, "others are not concerned");
        let later = start + Duration::from_secs(10);
        assert_eq!(waits(&throttle, "10.0.0.1", later), None);
        assert!(throttle.fail(address("10.0.0.1"), PER_MINUTE, later));
        assert!(waits(&throttle, "10.0.0.1", later).is_some());
        assert_eq!(waits(&throttle, "10.0.0.1", later + MINUTE), None);
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_mapped_addresses_are_those_of_ipv4() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for host in 0..PER_MINUTE {
            throttle.fail(address(&format!("2001:db8:0:1::{host:x}")), PER_MINUTE, now);
            throttle.fail(address("::ffff:10.0.0.1"), PER_MINUTE, now);
        }
        assert!(waits(&throttle, "2001:db8:0:1:ffff::", now).is_some());
        assert_eq!(waits(&throttle, "2001:db8:0:2::1", now), None);
        assert!(waits(&throttle, "10.0.0.1", now).is_some());
    }

    #[test]
    fn without_a_limit_nobody_waits_and_nothing_is_remembered() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        for _ in 0..1_000 {
            assert!(!throttle.fail(address("10.0.0.1"), 0, now));
        }
        assert_eq!(
            (throttle.wait(address("10.0.0.1"), 0, now), throttle.buckets.len()),
            (None, 0)
        );
    }

    #[test]
    fn memory_is_bounded_and_who_finds_no_room_is_counted_with_others() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let nth = |n: usize| IpAddr::from(u32::try_from(n).unwrap().to_be_bytes());
        for n in 0..2 * ADDRESSES_MAX {
            throttle.fail(nth(n), PER_MINUTE, now);
        }
        assert_eq!(throttle.buckets.len(), ADDRESSES_MAX + 1);
        assert!(
            throttle.wait(nth(2 * ADDRESSES_MAX), PER_MINUTE, now).is_some(),
            "counted with others"
        );
        assert_eq!(throttle.wait(nth(0), PER_MINUTE, now), None, "it has its own");
        let later = now + 2 * MINUTE;
        throttle.fail(nth(3 * ADDRESSES_MAX), PER_MINUTE, later);
        assert_eq!(throttle.buckets.len(), 1, "all others were full again");
    }
}
