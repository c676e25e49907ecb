//! What a leader knows of one queue.

use crate::delayed::Delayed;
use crate::lane::{Holds, Lane};
use crate::machine::Queue;
use crate::ordering::Keyed;
use crate::outcome::QueueStats;
use crate::place::{DELAYED, KEYED, LANES, STREAMS};

/// One queue. Streams that were never published to have nothing in here.
#[derive(Debug, Default)]
pub(crate) struct QueueState {
    pub(crate) lanes: [Option<Box<Lane>>; LANES],
    pub(crate) delayed: Option<Box<Delayed>>,
    pub(crate) keyed: Option<Box<Keyed>>,
    /// Messages that are leased.
    pub(crate) leased: u64,
    /// Whether it is among those that were woken.
    pub(crate) woken: bool,
}

impl QueueState {
    pub(crate) fn holds(&self, lane: usize) -> Option<&Holds> {
        match lane {
            DELAYED => self.delayed.as_ref().map(|delayed| &delayed.holds),
            KEYED => self.keyed.as_ref().map(|keyed| &keyed.holds),
            _ => self.lanes.get(lane)?.as_ref().map(|lane| &lane.holds),
        }
    }

    pub(crate) fn holds_mut(&mut self, lane: usize) -> Option<&mut Holds> {
        match lane {
            DELAYED => self.delayed.as_mut().map(|delayed| &mut delayed.holds),
            KEYED => self.keyed.as_mut().map(|keyed| &mut keyed.holds),
            _ => self.lanes.get_mut(lane)?.as_mut().map(|lane| &mut lane.holds),
        }
    }

    /// As [`QueueState::holds_mut`], for a stream that may be new in here.
    pub(crate) fn holds_new(&mut self, lane: usize) -> &mut Holds {
        match lane {
            DELAYED => &mut self.delayed.get_or_insert_default().holds,
            KEYED => &mut self.keyed.get_or_insert_default().holds,
            _ => &mut self.lanes[lane].get_or_insert_default().holds,
        }
    }

    /// Whether nothing is leased or being settled.
    pub(crate) fn is_idle(&self) -> bool {
        let mut holds = (0..STREAMS).filter_map(|lane| self.holds(lane));
        self.leased == 0 && holds.all(|holds| holds.claimed.count() == 0)
    }

    pub(crate) fn stats(&self, queue: &Queue) -> QueueStats {
        let holds = (0..STREAMS).filter_map(|lane| self.holds(lane));
        let (claimed, purging) = holds.fold((0, 0), |(claimed, purging), holds| {
            (claimed + holds.claimed.count(), purging + holds.purging.count())
        });
        let leased = self.leased + claimed;
        let delayed = self.delayed.as_ref().map_or(0, |delayed| delayed.sleeping.count());
        QueueStats {
            // Saturating, because a figure is not worth a panic; they add up.
            ready: queue.open_count().saturating_sub(leased + delayed + purging),
            leased,
            delayed,
        }
    }
}
