//! What the publishers and workers of a test know of its messages, which are numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use boltq_tests::harness::binary::{Frame, command, status};
use boltq_tests::harness::library::{Lockstep, Positional};
use serde_json::{Value, json};

/// For what happens soon; machines stand still at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// What is known of a message.
#[derive(Debug, Default, Clone)]
struct Fate {
    /// Publishes of it that were answered with OK, and those without an answer.
    published: usize,
    unanswered: usize,
    /// Its messages, by their ids, that a worker had.
    taken: BTreeSet<String>,
}

/// The knowledge of all together.
#[derive(Debug, Default)]
pub(crate) struct Work {
    fates: Mutex<BTreeMap<u64, Fate>>,
    acked: Mutex<BTreeSet<String>>,
    pub(crate) published: AtomicU64,
    pub(crate) processed: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl Work {
    /// Publishes one number after the other, until it is told to stop; each until it is answered with OK.
    pub(crate) fn publish(&self, library: &mut Lockstep, code: u8, topic: &str) {
        let mut numbers = 0..;
        while !self.stop.load(Ordering::SeqCst) {
            let number: u64 = numbers.next().expect("a number");
            while !self.stop.load(Ordering::SeqCst) {
                let unanswered = library.unanswered();
                let reply = library.command(code, &json!({"topic": topic, "payload": number, "headers": null}));
                let unanswered = library.unanswered() - unanswered;
                let done = reply.is_ok_and(|reply| reply.status == status::OK);
                self.told(number, done, unanswered);
                if done {
                    self.published.fetch_add(1, Ordering::SeqCst);
                    break;
                }
                // Nobody leads now.
                std::thread::sleep(10 * PAUSE);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn told(&self, number: u64, done: bool, unanswered: usize) {
        let mut fates = self.fates.lock().unwrap();
        let fate = fates.entry(number).or_default();
        fate.published += usize::from(done);
        fate.unanswered += unanswered;
    }

    /// Takes and acknowledges what there is, until it is told to stop.
    pub(crate) fn process(&self, library: &Positional, queue: &str) {
        while !self.stop.load(Ordering::SeqCst) {
            match library.consume(queue) {
                Ok(Some(message)) if message["id"].is_string() => self.take(library, &message),
                // Nothing, no connection, or no message: this library reads NOT_LEADER as one, without an id.
                _ => std::thread::sleep(PAUSE),
            }
        }
    }

    fn take(&self, library: &Positional, message: &Value) {
        let (id, number) = (message["id"].as_str().expect("an id"), number_of(message));
        assert!(
            !self.acked.lock().unwrap().contains(id),
            "{number} was acknowledged and came again"
        );
        self.fates
            .lock()
            .unwrap()
            .entry(number)
            .or_default()
            .taken
            .insert(id.to_owned());
        let acked = library.request(command::ACK, &json!({"id": id}));
        if acked.is_ok_and(|reply: Frame| reply.status == status::OK) {
            self.acked.lock().unwrap().insert(id.to_owned());
        }
        self.processed.fetch_add(1, Ordering::SeqCst);
    }

    /// Everything that was answered with OK was processed, and nothing that was never sent.
    pub(crate) fn check(&self) {
        for (number, fate) in &*self.fates.lock().unwrap() {
            let possible = fate.published..=fate.published + fate.unanswered;
            assert!(possible.contains(&fate.taken.len()), "{number}: {fate:?}");
        }
    }

    /// Numbers whose publish was answered with OK.
    pub(crate) fn promised(&self) -> BTreeSet<u64> {
        let fates = self.fates.lock().unwrap();
        fates
            .iter()
            .filter(|(_, fate)| fate.published > 0)
            .map(|(number, _)| *number)
            .collect()
    }
}

/// Tells everybody to stop, also when a test fails while others work: who waits for them would wait for ever.
pub(crate) struct Stop<'w>(pub(crate) &'w Work);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::SeqCst);
    }
}

/// A number, or one as a JSON string, as one of the libraries sends it.
pub(crate) fn number_of(message: &Value) -> u64 {
    let payload = &message["payload"];
    let number = payload.as_u64().or_else(|| payload.as_str()?.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {message}"))
}

/// Asks until there is an answer.
pub(crate) fn until<T>(mut ask: impl FnMut() -> io::Result<T>) -> T {
    boltq_tests::harness::eventually(PATIENCE, "an answer", || ask().ok())
}
