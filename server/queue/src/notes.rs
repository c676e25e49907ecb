//! What records said that the machine does not know: when a message expires, and that it has an id of its own.
//!
//! Noted when a record is read for a delivery, forgotten when the message is done; so what is in here was delivered at
//! least once and is not done.

use std::collections::BTreeMap;
use std::ops::Range;

use boltq_core::{MessageId, Millis, StreamId};

use crate::place::Place;

#[derive(Debug, Clone, Copy)]
struct Note {
    expires: Option<Millis>,
    id: Option<MessageId>,
}

#[derive(Debug, Default)]
pub(crate) struct Notes {
    notes: BTreeMap<Place, Note>,
    places: BTreeMap<MessageId, Place>,
}

impl Notes {
    pub(crate) fn add(&mut self, place: Place, expires: Option<Millis>, id: Option<MessageId>) {
        self.notes.insert(place, Note { expires, id });
        if let Some(id) = id {
            self.places.insert(id, place);
        }
    }

    pub(crate) fn find(&self, id: MessageId) -> Option<Place> {
        if self.places.is_empty() {
            return None;
        }
        self.places.get(&id).copied()
    }

    pub(crate) fn expired(&self, place: Place, now: Millis) -> bool {
        if self.notes.is_empty() {
            return false;
        }
        let note = self.notes.get(&place);
        note.and_then(|note| note.expires).is_some_and(|expires| expires <= now)
    }

    pub(crate) fn forget(&mut self, stream: StreamId, range: &Range<u64>) {
        if self.notes.is_empty() {
            return;
        }
        let within = Place::new(stream, range.start)..Place::new(stream, range.end);
        while let Some((&place, note)) = self.notes.range(within.clone()).next() {
            // A message that moved on keeps its id: the id may lead to its next place already.
            if let Some(id) = note.id.filter(|id| self.places.get(id) == Some(&place)) {
                self.places.remove(&id);
            }
            self.notes.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_the_newest_place_and_is_forgotten_with_it() {
        let (old, new) = (Place::new(StreamId(16), 1), Place::new(StreamId(32), 1));
        let id = MessageId([7; 16]);
        let mut notes = Notes::default();
        notes.add(old, Some(Millis(10)), Some(id));
        notes.add(new, None, Some(id));
        notes.forget(StreamId(16), &(1..2));
        assert_eq!(notes.find(id), Some(new));
        assert!(!notes.expired(old, Millis(10)));
        notes.forget(StreamId(32), &(0..9));
        assert_eq!(notes.find(id), None);
        assert!(notes.notes.is_empty() && notes.places.is_empty());
    }

    #[test]
    fn a_message_expires_at_its_time_not_after_it() {
        let place = Place::new(StreamId(16), 1);
        let mut notes = Notes::default();
        notes.add(place, Some(Millis(10)), None);
        assert!(!notes.expired(place, Millis(9)));
        assert!(notes.expired(place, Millis(10)));
    }
}
