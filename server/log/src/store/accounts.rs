//! What each file is needed for.
//!
//! A file goes when no row in memory points into it, no durable checkpoint has a row that does, nobody has pinned it, and,
//! for a WAL file, a replay does not need it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::Changes;
use crate::types::FileId;

/// Kind of a file that rows can point into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Wal,
    Segment,
}

/// What is known of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    pub(crate) class: Class,
    /// Length of the file.
    pub(crate) bytes: u64,
    /// What it holds when all of it is wanted: of a segment the bytes of its records, as what is around them cannot be saved.
    pub(crate) full_bytes: u64,
    /// Rows in memory that point into it.
    pub(crate) rows: u64,
    /// Bytes of their records.
    pub(crate) live_bytes: u64,
    /// Durable checkpoints with rows that point into it.
    checkpoints: u32,
    /// Captures and copies that are at work on it.
    pins: u32,
    /// A frame of it could not be read: it is left as it is.
    pub(crate) damaged: bool,
}

impl Account {
    fn new(class: Class, bytes: u64, full_bytes: u64) -> Self {
        Self {
            class,
            bytes,
            full_bytes,
            rows: 0,
            live_bytes: 0,
            checkpoints: 0,
            pins: 0,
            damaged: false,
        }
    }

    fn is_free(&self) -> bool {
        self.rows == 0 && self.checkpoints == 0 && self.pins == 0
    }
}

/// The accounts of all files. Cloning gives another handle to the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Accounts {
    files: Arc<Mutex<BTreeMap<FileId, Account>>>,
    /// Files without an account that a power loss may show to be there still. Taken after the lock of the accounts.
    leaving: Arc<Mutex<BTreeSet<FileId>>>,
    /// Counts the times that a file lost its last row.
    emptied: Arc<AtomicU64>,
}

/// Keeps files until it is dropped.
#[derive(Debug)]
pub(crate) struct Pins {
    accounts: Accounts,
    files: Vec<FileId>,
}

impl Pins {
    pub(crate) fn files(&self) -> &[FileId] {
        &self.files
    }

    /// Keeps them for as long as the log is open.
    pub(crate) fn keep(&self) {
        let mut pins = self.accounts.pin(self.files.clone());
        // So that nobody takes them back.
        pins.files.clear();
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut files = self.accounts.files.lock();
        for id in &self.files {
            if let Some(account) = files.get_mut(id) {
                account.pins = account.pins.saturating_sub(1);
            }
        }
    }
}

impl Accounts {
    pub(crate) fn open_wal(&self, id: FileId, bytes: u64) {
        self.files.lock().insert(id, Account::new(Class::Wal, bytes, bytes));
    }

    /// Opens the account of a segment, with a pin on it.
    pub(crate) fn open_segment(&self, id: FileId, bytes: u64, record_bytes: u64) -> Pins {
        let mut account = Account::new(Class::Segment, bytes, record_bytes);
        account.pins = 1;
        self.files.lock().insert(id, account);
        Pins {
            accounts: self.clone(),
            files: vec![id],
        }
    }

    /// Closes an account; the file is about to go.
    pub(crate) fn remove(&self, id: FileId) {
        let mut files = self.files.lock();
        self.leaving.lock().insert(id);
        files.remove(&id);
    }

    /// A file that never had an account is about to go.
    pub(crate) fn leave(&self, id: FileId) {
        self.leaving.lock().insert(id);
    }

    /// These files are gone from the device, for good.
    pub(crate) fn left(&self, ids: impl IntoIterator<Item = FileId>) {
        let mut leaving = self.leaving.lock();
        for id in ids {
            leaving.remove(&id);
        }
    }

    /// Whether any WAL file up to `upto` may be on the device, or a segment that is leaving.
    pub(crate) fn holds_wal_upto(&self, upto: FileId) -> bool {
        let files = self.files.lock();
        let mut accounts = files.range(..=upto);
        accounts.any(|(_, account)| account.class == Class::Wal) || self.leaving.lock().range(..=upto).next().is_some()
    }

    /// Whether a file may be on the device.
    pub(crate) fn holds(&self, id: FileId) -> bool {
        let files = self.files.lock();
        files.contains_key(&id) || self.leaving.lock().contains(&id)
    }

    pub(crate) fn class(&self, id: FileId) -> Option<Class> {
        self.files.lock().get(&id).map(|account| account.class)
    }

    pub(crate) fn pin(&self, ids: Vec<FileId>) -> Pins {
        let mut files = self.files.lock();
        for id in &ids {
            if let Some(account) = files.get_mut(id) {
                account.pins += 1;
            }
        }
        Pins {
            accounts: self.clone(),
            files: ids,
        }
    }

    /// Books what happened to rows; returns whether a file has none left.
    pub(crate) fn book(&self, changes: &Changes) -> bool {
        let mut files = self.files.lock();
        let mut any_empty = false;
        for (id, change) in changes.files() {
            if let Some(account) = files.get_mut(&id) {
                account.rows = account.rows.saturating_add_signed(change.rows);
                account.live_bytes = account.live_bytes.saturating_add_signed(change.bytes);
                any_empty |= account.rows == 0 && change.rows < 0;
            }
        }
        if any_empty {
            self.emptied.fetch_add(1, Ordering::Relaxed);
        }
        any_empty
    }

    /// A checkpoint that refers to `new` took the place of one that referred to `old`.
    pub(crate) fn checkpointed(&self, old: &[FileId], new: &[FileId]) {
        let mut files = self.files.lock();
        for id in new {
            if let Some(account) = files.get_mut(id) {
                account.checkpoints += 1;
            }
        }
        for id in old {
            if let Some(account) = files.get_mut(id) {
                account.checkpoints = account.checkpoints.saturating_sub(1);
            }
        }
    }

    pub(crate) fn mark_damaged(&self, id: FileId) {
        if let Some(account) = self.files.lock().get_mut(&id) {
            account.damaged = true;
        }
    }

    /// Closes the accounts of all files that nothing needs; a replay needs the WAL from `replay_from` on.
    pub(crate) fn take_free(&self, replay_from: FileId) -> Vec<(FileId, Account)> {
        let mut files = self.files.lock();
        let free: Vec<FileId> = files
            .iter()
            .filter(|(id, account)| account.is_free() && (account.class == Class::Segment || **id < replay_from))
            .map(|(id, _)| *id)
            .collect();
        self.leaving.lock().extend(&free);
        free.into_iter()
            .filter_map(|id| files.remove(&id).map(|account| (id, account)))
            .collect()
    }

    /// Changes whenever [`Accounts::checkpoint_held_bytes`] may have grown.
    pub(crate) fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Relaxed)
    }

    /// Bytes of files that go once a checkpoint replaces the newest: nothing but old checkpoints refers to them.
    pub(crate) fn checkpoint_held_bytes(&self, held: &[FileId]) -> u64 {
        let files = self.files.lock();
        let held = held.iter().filter_map(|id| files.get(id));
        held.filter(|account| account.rows == 0 && account.pins == 0 && account.checkpoints > 0)
            .map(|account| account.bytes)
            .sum()
    }

    /// Those of `held` that no rows are in any more.
    pub(crate) fn held_by_checkpoints(&self, held: &[FileId]) -> Vec<(FileId, Account)> {
        let files = self.files.lock();
        let held = held
            .iter()
            .filter_map(|id| files.get(id).map(|account| (*id, *account)));
        held.filter(|(_, account)| account.rows == 0).collect()
    }

    pub(crate) fn snapshot(&self) -> Vec<(FileId, Account)> {
        self.files.lock().iter().map(|(id, account)| (*id, *account)).collect()
    }
}
