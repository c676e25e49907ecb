//! Idempotency keys that the client makes up for publishes to queues, and the one place that knows when it does without.
//!
//! The server remembers a bounded number of keys and refuses what would be one more. For keys that nobody asked for, that must not be
//! the end: such a message is sent without one, and no more are made for a while. What room there is stays for keys that were chosen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use boltq_proto::r#type::v1::Message;
use tokio::time::Instant;

use super::backoff::random;

/// The server remembers as many keys as it may. Nothing was stored.
pub(crate) const KEYS_FULL: &str = "IDEMPOTENCY_KEYS_FULL";

/// How long none are made after that: as long as the server remembers them by default.
const REST: Duration = Duration::from_millis(REST_MILLIS);
const REST_MILLIS: u64 = 600_000;

/// Makes the keys of one client.
#[derive(Debug)]
pub(crate) struct Keys {
    wanted: bool,
    prefix: String,
    numbers: AtomicU64,
    begun: Instant,
    /// In milliseconds since `begun`: none are made before that.
    again_at: AtomicU64,
}

/// A message to a queue, with the key that it has on its way.
#[derive(Debug)]
pub(crate) struct Keyed {
    pub(crate) message: Message,
    key: Key,
}

/// Where the key of a message comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// From the application.
    Chosen,
    /// From [`Keys`].
    MadeUp,
    /// It has none, or none any more.
    Absent,
}

impl Keyed {
    fn drop_key(&mut self) {
        self.message.idempotency_key.clear();
        self.key = Key::Absent;
    }
}

impl Keys {
    /// `wanted`: if nothing else is said of a message.
    pub(crate) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            prefix: format!("{:016x}{:016x}-", random(), random()),
            numbers: AtomicU64::new(0),
            begun: Instant::now(),
            again_at: AtomicU64::new(0),
        }
    }

    /// Gives the message a key that no other publish has if it has none, that is wanted, and there was room for keys lately.
    /// `None`: as the client was told.
    pub(crate) fn give(&self, mut message: Message, wanted: Option<bool>) -> Keyed {
        let key = if !message.idempotency_key.is_empty() {
            Key::Chosen
        } else if wanted.unwrap_or(self.wanted) && !self.rest_at(self.now()) {
            let number = self.numbers.fetch_add(1, Ordering::Relaxed);
            message.idempotency_key = format!("{}{number}", self.prefix);
            Key::MadeUp
        } else {
            Key::Absent
        };
        Keyed { message, key }
    }

    /// Whether a message that was refused for this reason is to be sent again at once, without its key; it has none any more then. That is
    /// never so for a key of the application.
    /// `unknown`: an earlier attempt may have stored it, and without the key it could be stored twice.
    pub(crate) fn does_without(&self, keyed: &mut Keyed, reason: Option<&str>, unknown: bool) -> bool {
        if reason != Some(KEYS_FULL) || unknown || keyed.key != Key::MadeUp {
            return false;
        }
        self.rest_from(self.now());
        keyed.drop_key();
        true
    }

    /// Takes the key of a message that waits to be sent, if it was made up before there was no room. With it the message would be refused,
    /// and those behind it that have none would come before it. `unknown` as above.
    pub(crate) fn reconsider(&self, keyed: &mut Keyed, unknown: bool) {
        if keyed.key == Key::MadeUp && !unknown && self.rest_at(self.now()) {
            keyed.drop_key();
        }
    }

    fn rest_from(&self, now: u64) {
        let before = self.again_at.fetch_max(now + REST_MILLIS, Ordering::Relaxed);
        // Many are refused together, and one warning tells of all.
        if before <= now {
            tracing::warn!(
                pause = ?REST,
                "the server remembers as many idempotency keys as it may (queue.dedup_max_keys); publishes without a key of the application \
                 go without one for a while, and fail if their outcome is unknown"
            );
        }
    }

    fn rest_at(&self, now: u64) -> bool {
        now < self.again_at.load(Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex, PoisonError};

    use super::*;

    fn chosen() -> Message {
        Message {
            idempotency_key: "order-17".to_owned(),
            ..Message::default()
        }
    }

    #[test]
    fn keys_are_made_where_they_are_wanted_and_no_two_are_the_same() {
        let keys = Keys::new(true);
        let key = |keys: &Keys, wanted| keys.give(Message::default(), wanted).message.idempotency_key;
        assert_ne!(key(&keys, None), key(&keys, None));
        assert_ne!(key(&Keys::new(true), None), key(&Keys::new(true), None));
        assert_eq!(key(&keys, Some(false)), "");
        assert_eq!(key(&Keys::new(false), None), "");
        assert_ne!(key(&Keys::new(false), Some(true)), "");
        assert_eq!(keys.give(chosen(), None).message, chosen());
    }

    #[test]
    fn a_key_is_left_out_only_if_it_was_made_up_and_no_message_can_be_there_that_has_it() {
        let keys = Keys::new(true);
        let mut made_up = keys.give(Message::default(), None);
        let key = made_up.message.idempotency_key.clone();
        assert!(!keys.does_without(&mut made_up, Some(KEYS_FULL), true));
        assert!(!keys.does_without(&mut made_up, Some("QUEUE_FULL"), false));
        assert!(!keys.does_without(&mut made_up, None, false));
        assert_eq!(made_up.message.idempotency_key, key);
        let mut of_the_application = keys.give(chosen(), None);
        assert!(!keys.does_without(&mut of_the_application, Some(KEYS_FULL), false));
        assert_eq!(of_the_application.message, chosen());
        assert!(!keys.rest_at(keys.now()));
        let mut waiting = keys.give(Message::default(), None);
        keys.reconsider(&mut waiting, false);
        assert_ne!(waiting.message.idempotency_key, "");

        assert!(keys.does_without(&mut made_up, Some(KEYS_FULL), false));
        assert_eq!(made_up.message.idempotency_key, "");
        // It has none that could be left out.
        assert!(!keys.does_without(&mut made_up, Some(KEYS_FULL), false));
        let mut without = keys.give(Message::default(), Some(true));
        assert_eq!(without.message.idempotency_key, "");
        keys.reconsider(&mut waiting, true);
        assert_ne!(waiting.message.idempotency_key, "");
        keys.reconsider(&mut waiting, false);
        assert_eq!(waiting.message.idempotency_key, "");
        keys.reconsider(&mut of_the_application, false);
        assert_eq!(of_the_application.message, chosen());
        assert!(!keys.does_without(&mut without, Some(KEYS_FULL), false));
        assert_eq!(keys.give(chosen(), None).message, chosen());
    }

    #[test]
    fn each_rest_takes_ten_minutes_and_is_told_once() {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        let keys = Keys::new(true);
        tracing::subscriber::with_default(lines, || {
            keys.rest_from(1_000);
            keys.rest_from(2_000);
            assert!(keys.rest_at(1_000) && keys.rest_at(601_999) && !keys.rest_at(602_000));
            keys.rest_from(700_000);
        });
        let text = written.text();
        assert_eq!(text.matches("WARN").count(), 2, "{text}");
        assert_eq!(text.matches("queue.dedup_max_keys").count(), 2, "{text}");
    }

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Written {
        fn text(&self) -> String {
            let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
