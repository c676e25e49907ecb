//! Appends that may be repeated: what the first one with a key was answered, until its time is over.
//!
//! A sender that got no answer asks again with the same key and gets the first answer, also from the next leader and after a
//! restart. A key counts in the partition that it was given for: the same one elsewhere is another one. It is claimed by the
//! command that stores the records and by no other, so what is answered as repeated was stored. When it is forgotten is fixed when it
//! is claimed; repeating does not move that.
//!
//! Keys are in the order in which they came, 48 bytes each, and a table leads to them, 6 to 11 bytes more. They are forgotten in
//! that order: one whose time is over takes memory until those before it are over as well, and means nothing any more.
//!
//! Senders choose their ids, and might choose many whose keys want the same place of the table. A secret that they do not know spreads
//! them. It changes nothing that can be seen, so each replica has its own.

use std::collections::BTreeMap;

use boltq_core::codec::{self, Reader};
use boltq_core::{DecodeError, Millis, Seq, StreamId};
use bytes::{BufMut, BytesMut};
use ring::digest;

use crate::fifo::Fifo;
use crate::format::{check, read_number};

/// Keys that one command forgets at most: more than it adds, so that they become fewer, and few, so that none takes long.
const FORGET_MAX: usize = 4;
/// Most keys of a group, whatever commands allow.
const CLAIMS_MAX: usize = 1 << 30;
/// Numbers of keys are these bits of how many there were before.
const NUMBER_MASK: u32 = (1 << 31) - 1;
/// The least size of the table.
const TABLE_MIN: usize = 16;

/// What is kept of the name of a sender and the id that it gave its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimKey(pub u128);

impl ClaimKey {
    /// The first 16 bytes of SHA-256 over the length of the sender (u64), the sender and the id. Nobody finds two that are the same, so
    /// nobody can make the message of somebody else look like one that was sent before.
    #[must_use]
    pub fn of(sender: &str, client_msg_id: &str) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&(sender.len() as u64).to_le_bytes());
        context.update(sender.as_bytes());
        context.update(client_msg_id.as_bytes());
        let hash = context.finish();
        let (first, _) = hash.as_ref().split_first_chunk().unwrap_or((&[0; 16], &[]));
        Self(u128::from_le_bytes(*first))
    }
}

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) first: Seq,
    pub(crate) count: u32,
    pub(crate) timestamp_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Claim {
    /// In two halves: in one piece it would be aligned to 16 bytes, and take 64.
    key: [u64; 2],
    stream: u64,
    first: u64,
    timestamp_ns: u64,
    count: u32,
    /// Unix seconds.
    until_s: u32,
}

const _: () = assert!(size_of::<Claim>() == 48);

impl Claim {
    fn is_over(&self, now: Millis) -> bool {
        u64::from(self.until_s) * 1_000 <= now.0
    }
}

#[derive(Debug, Default)]
pub(crate) struct Claims {
    claims: Fifo<Claim>,
    /// How many came and went before the first of them, in the bits of a number.
    before: u32,
    /// Numbers plus 1, 0 where there is none: each at the place that its key says or, where others are, behind these. Its length is a
    /// power of two, and a quarter at least is empty.
    table: Vec<u32>,
    secret: u64,
}

impl Claims {
    /// Those included whose time is over and that take memory still.
    pub(crate) fn len(&self) -> usize {
        self.claims.len()
    }

    /// Spreads the table by another secret.
    pub(crate) fn scatter(&mut self, secret: u64) {
        self.secret = secret;
        self.rebuild(self.table.len());
    }

    /// Whether there is no room for one more.
    pub(crate) fn is_full(&self, claims_max: u32, now: Millis) -> bool {
        let first_lives = self.claims.front().is_some_and(|first| !first.is_over(now));
        first_lives && self.len() >= CLAIMS_MAX.min(claims_max as usize)
    }

    pub(crate) fn find(&self, stream: StreamId, key: ClaimKey, now: Millis) -> Option<Answer> {
        let key = halves(key.0);
        let found = self.probe(self.home(key, stream.0)).find_map(|(_, claim)| {
            (claim.key == key && claim.stream == stream.0 && !claim.is_over(now)).then_some(claim)
        })?;
        Some(Answer {
            first: Seq(found.first),
            count: found.count,
            timestamp_ns: found.timestamp_ns,
        })
    }

    /// Keeps an answer for so long, rounded up to a second.
    pub(crate) fn keep(&mut self, stream: StreamId, key: ClaimKey, answer: Answer, now: Millis, ttl_ms: u64) {
        self.push(Claim {
            key: halves(key.0),
            stream: stream.0,
            first: answer.first.0,
            timestamp_ns: answer.timestamp_ns,
            count: answer.count,
            until_s: u32::try_from(now.plus(ttl_ms).0.div_ceil(1_000)).unwrap_or(u32::MAX),
        });
    }

    /// Forgets some of the first ones whose time is over.
    pub(crate) fn forget_some(&mut self, now: Millis) {
        for _ in 0..FORGET_MAX {
            if !self.claims.front().is_some_and(|first| first.is_over(now)) {
                return;
            }
            self.forget_first();
        }
    }

    fn push(&mut self, claim: Claim) {
        self.claims.push_back(claim);
        if self.claims.len() * 4 > self.table.len() * 3 {
            self.rebuild((self.table.len() * 2).max(TABLE_MIN));
        } else {
            self.enter(self.claims.len() - 1);
        }
    }

    fn forget_first(&mut self) {
        let Some(first) = self.claims.front() else { return };
        let entry = self.number(0) + 1;
        let mut places = self.probe(self.home(first.key, first.stream)).map(|(place, _)| place);
        let place = places.find(|place| self.table.get(*place) == Some(&entry));
        drop(places);
        if let Some(place) = place {
            self.clear(place);
        }
        self.claims.pop_front();
        self.before = (self.before + 1) & NUMBER_MASK;
        if self.table.len() > TABLE_MIN && self.claims.len() * 8 < self.table.len() {
            self.rebuild(self.table.len() / 2);
        }
    }

    fn number(&self, index: usize) -> u32 {
        self.before.wrapping_add(u32::try_from(index).unwrap_or(0)) & NUMBER_MASK
    }

    /// Of what stands in the table.
    fn claim(&self, entry: u32) -> Option<&Claim> {
        let number = entry.checked_sub(1)?;
        self.claims
            .get((number.wrapping_sub(self.before) & NUMBER_MASK) as usize)
    }

    /// Places from that of a hash on up to the first empty one, with what is there.
    fn probe(&self, hash: u64) -> impl Iterator<Item = (usize, &Claim)> {
        let start = self.place(hash);
        let places = (start..self.table.len()).chain(0..start);
        places.map_while(|place| Some((place, self.claim(*self.table.get(place)?)?)))
    }

    /// Where a key belongs in the table, once it is cut to its length.
    fn home(&self, key: [u64; 2], stream: u64) -> u64 {
        let [low, high] = key;
        let product = u128::from(low ^ self.secret) * u128::from(high ^ stream ^ self.secret.rotate_left(32));
        let [low, high] = halves(product);
        low ^ high
    }

    fn place(&self, hash: u64) -> usize {
        // The table is not longer than memory.
        usize::try_from(hash).unwrap_or(usize::MAX) & self.table.len().saturating_sub(1)
    }

    /// Makes the table lead to one of the claims.
    fn enter(&mut self, index: usize) {
        let Some(claim) = self.claims.get(index) else { return };
        let start = self.place(self.home(claim.key, claim.stream));
        let entry = self.number(index) + 1;
        let (front, back) = self.table.split_at_mut(start);
        if let Some(empty) = back.iter_mut().chain(front).find(|entry| **entry == 0) {
            *empty = entry;
        }
    }

    fn rebuild(&mut self, length: usize) {
        self.table.clear();
        self.table.shrink_to(length);
        self.table.reserve_exact(length);
        self.table.resize(length, 0);
        for index in 0..self.claims.len() {
            self.enter(index);
        }
    }

    /// Empties a place, and moves up what stands behind it only because it was taken.
    fn clear(&mut self, place: usize) {
        let mask = self.table.len() - 1;
        let mut hole = place;
        let mut at = place;
        loop {
            at = (at + 1) & mask;
            let entry = self.table.get(at).copied().unwrap_or(0);
            let Some(claim) = self.claim(entry) else { break };
            let start = self.place(self.home(claim.key, claim.stream));
            // How far it is from where it should be, and from the hole.
            if at.wrapping_sub(start) & mask >= at.wrapping_sub(hole) & mask {
                self.table.swap(hole, at);
                hole = at;
            }
        }
        if let Some(entry) = self.table.get_mut(hole) {
            *entry = 0;
        }
    }

    /// ```text
    /// u32 number of keys; each, in the order in which they came:
    ///     u128 key, u64 stream, u64 first sequence, u64 timestamp (Unix nanoseconds), u32 count, u32 until (Unix seconds)
    /// ```
    pub(crate) fn write(&self, out: &mut BytesMut) {
        codec::put_len(out, self.claims.len());
        for claim in self.claims.iter() {
            let [low, high] = claim.key;
            for part in [low, high, claim.stream, claim.first, claim.timestamp_ns] {
                out.put_u64_le(part);
            }
            out.put_u32_le(claim.count);
            out.put_u32_le(claim.until_s);
        }
    }

    /// `next_seq` says which sequence the next record of a stream gets, of those that there are.
    pub(crate) fn read(
        reader: &mut Reader<'_>,
        last_stream: u64,
        next_seq: &BTreeMap<u64, u64>,
    ) -> Result<Self, DecodeError> {
        const WHAT: &str = "keys of appends";
        let count = reader.count(size_of::<Claim>(), WHAT)?;
        check(count <= CLAIMS_MAX, WHAT, "there are too many")?;
        let mut claims = Self::default();
        for _ in 0..count {
            let claim = Claim {
                key: [reader.u64(WHAT)?, reader.u64(WHAT)?],
                stream: reader.u64(WHAT)?,
                first: read_number(reader, WHAT)?,
                timestamp_ns: reader.u64(WHAT)?,
                count: reader.u32(WHAT)?,
                until_s: reader.u32(WHAT)?,
            };
            let stored = claim.count > 0 && claim.first > 0 && (1..=last_stream).contains(&claim.stream);
            let end = claim.first + u64::from(claim.count);
            // Of a topic that is no more, its keys are left until their time is over.
            let there = next_seq.get(&claim.stream).is_none_or(|next| end <= *next);
            check(stored && there, WHAT, "one is of records that never were")?;
            claims.claims.push_back(claim);
        }
        let length = (count * 4 / 3 + 1).next_power_of_two().max(TABLE_MIN);
        if count > 0 {
            claims.rebuild(length);
        }
        Ok(claims)
    }
}

fn halves(whole: u128) -> [u64; 2] {
    let bytes = whole.to_le_bytes();
    let (halves, _) = bytes.as_chunks::<8>();
    let half = |index: usize| halves.get(index).map_or(0, |half| u64::from_le_bytes(*half));
    [half(0), half(1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(seq: u64) -> Answer {
        Answer {
            first: Seq(seq),
            count: 1,
            timestamp_ns: seq * 7,
        }
    }

    fn key(number: u64) -> ClaimKey {
        // A third of them want the same place of the table.
        let low = if number.is_multiple_of(3) { 0 } else { number };
        ClaimKey(u128::from(low) | u128::from(number) << 64)
    }

    /// Recorded: they lie in logs and snapshots.
    #[test]
    fn keys_are_what_they_were() {
        let key = |sender, id| format!("{:032x}", ClaimKey::of(sender, id).0);
        assert_eq!(key("ana", "m-1"), "4744fcfd104feec6d95bd1cf02c5273b");
        assert_ne!(key("anam", "-1"), key("ana", "m-1"));
        assert_ne!(key("", ""), key("", "\0"));
    }

    #[test]
    fn a_key_means_what_it_was_claimed_for_until_its_time_is_over() {
        let mut claims = Claims::default();
        claims.keep(StreamId(1), key(5), answer(9), Millis(1_500), 1_000);
        let find = |claims: &Claims, stream, number, now| claims.find(StreamId(stream), key(number), Millis(now));
        assert_eq!(find(&claims, 1, 5, 2_999), Some(answer(9)));
        assert_eq!(find(&claims, 1, 5, 3_000), None);
        assert_eq!((find(&claims, 2, 5, 0), find(&claims, 1, 6, 0)), (None, None));
        claims.forget_some(Millis(3_000));
        claims.keep(StreamId(1), key(5), answer(10), Millis(3_000), 1_000);
        claims.scatter(7);
        assert_eq!((claims.len(), find(&claims, 1, 5, 3_000)), (1, Some(answer(10))));
    }

    #[test]
    fn there_is_room_again_when_the_time_of_the_first_is_over() {
        let mut claims = Claims::default();
        assert!(!claims.is_full(1, Millis(0)) && !claims.is_full(0, Millis(0)));
        claims.keep(StreamId(1), key(1), answer(1), Millis(0), 1_000);
        assert!(claims.is_full(1, Millis(999)) && claims.is_full(0, Millis(0)) && !claims.is_full(2, Millis(0)));
        assert!(!claims.is_full(1, Millis(1_000)));
    }

    #[test]
    fn random_keys_are_found_as_in_a_plain_map() {
        let mut random = 7_u64;
        let mut claims = Claims {
            before: NUMBER_MASK - 500,
            ..Claims::default()
        };
        let mut model = BTreeMap::new();
        for step in 0..200_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = (random >> 33) % 400;
            let now = Millis(step * 100 + if step % 5_000 == 0 { 60_000 } else { 0 });
            let known = model
                .get(&number)
                .filter(|(_, until)| *until > now.0)
                .map(|(seq, _)| *seq);
            assert_eq!(
                claims.find(StreamId(1), key(number), now),
                known.map(answer),
                "step {step}"
            );
            claims.forget_some(now);
            if known.is_none() {
                let ttl_ms = 1_000 * (1 + step / 10_000 % 20);
                model.insert(number, (step + 1, (now.0 + ttl_ms).div_ceil(1_000) * 1_000));
                claims.keep(StreamId(1), key(number), answer(step + 1), now, ttl_ms);
            }
            assert!(claims.table.len() <= 8 * claims.len().max(TABLE_MIN));
        }
    }
}
