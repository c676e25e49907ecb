//! Steps that change and delete queues.

use bytes::BytesMut;
use proptest::prelude::*;

use super::steps::Step;
use super::{QUEUES, World};
use crate::{Outcome, QueueOption, QueueOptionSet, QueueOptions, command};

const LENGTH_MAX: u64 = 12;

/// Options that decide who gets what.
const CHANGED: [QueueOption; 4] = [
    QueueOption::MaxLength,
    QueueOption::DropOldest,
    QueueOption::SingleActiveConsumer,
    QueueOption::Paused,
];

pub(super) fn change() -> impl Strategy<Value = Step> {
    let which = prop::collection::vec(prop::sample::select(&CHANGED[..]), 1..4);
    let length = prop::option::weighted(0.7, 0..LENGTH_MAX);
    let switches = (any::<bool>(), any::<bool>(), prop::bool::weighted(0.2));
    (0usize..3, which, length, switches).prop_map(|(queue, which, max_length, switches)| {
        let (drop_oldest, single_active_consumer, paused) = switches;
        let mut set = QueueOptionSet::default();
        which.into_iter().for_each(|option| set.insert(option));
        let options = QueueOptions {
            max_length,
            drop_oldest,
            single_active_consumer,
            paused,
            ..QueueOptions::default()
        };
        Step::Change(queue, set, options)
    })
}

impl World {
    pub(super) fn change(&mut self, queue: usize, which: QueueOptionSet, options: QueueOptions) {
        let mut out = BytesMut::new();
        command::change_queue(&mut out, QUEUES[queue], which, &options);
        let id = self.ids[queue];
        let (outcome, freed) = self.nodes.apply(&out);
        assert_eq!(outcome, Outcome::QueueSet { queue: id, new: false });
        assert!(freed.is_empty());
        self.model.change(id, which, options);
    }

    pub(super) fn renew(&mut self, queue: usize) {
        let mut out = BytesMut::new();
        command::delete_queue(&mut out, QUEUES[queue], false);
        let (outcome, mut freed) = self.nodes.apply(&out);
        let mut removed = self.model.delete(self.ids[queue]);
        assert_eq!(outcome, Outcome::QueueDeleted(removed.len() as u64));
        freed.sort();
        removed.sort();
        assert_eq!(freed, removed);
        self.check();
        let mut out = BytesMut::new();
        command::declare(&mut out, QUEUES[queue]);
        let Outcome::Declared(id) = self.nodes.apply(&out).0 else {
            panic!("not declared");
        };
        assert!(self.ids.iter().all(|before| *before < id));
        self.ids[queue] = id;
    }
}
