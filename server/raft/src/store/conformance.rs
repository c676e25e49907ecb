//! openraft's own checks of a storage, over our log on disk.
//!
//! All of its suite but two: `transfer_snapshot` hands the snapshot of one node to another within the process; ours are sent,
//! and `tests/group/cluster.rs` has that. `get_initial_state_log_ids` starts from a log that was purged beyond every
//! checkpoint; a group refuses to open then, see `MachineStore::open`.

use std::sync::Arc;

use boltq_core::{DecodeError, GroupId, Term};
use boltq_log::{EntryId, Log, LogConfig, OsFiles, Storage};
use openraft::StorageError;
use openraft::testing::log::{StoreBuilder, Suite};

use super::{LogStore, MachineStore};
use crate::entry::Commands;
use crate::error::ApplyError;
use crate::group::{Captured, GroupHandler, Progress};
use crate::types::TypeConfig;

struct NoCommands;

impl GroupHandler for NoCommands {
    type Outcome = ();

    fn apply(&self, _entry: EntryId, commands: Commands<'_>) -> Result<Vec<()>, ApplyError> {
        Ok(commands.map(|_| ()).collect())
    }

    fn share(_outcome: &mut (), _items: u32) {}

    fn capture(&self) -> Captured {
        Box::new(Vec::new)
    }

    fn restore(&self, _state: &[u8]) -> Result<(), DecodeError> {
        Ok(())
    }

    fn leadership(&self, _leading: Option<Term>) {}
}

struct Stores;

type Machine = MachineStore<NoCommands>;

impl StoreBuilder<TypeConfig, LogStore, Machine, tempfile::TempDir> for Stores {
    async fn build(&self) -> Result<(tempfile::TempDir, LogStore, Machine), StorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let config = LogConfig {
            storage: Storage::Disk {
                dir: dir.path().to_owned(),
            },
            wal_file_bytes: 1 << 20,
            ..LogConfig::default()
        };
        let log = Log::open(config, Arc::new(OsFiles)).unwrap().group(GroupId(1));
        let progress = Arc::new(Progress::new(u64::MAX, u64::MAX));
        let machine = MachineStore::open(Arc::new(NoCommands), log.clone(), progress.clone()).unwrap();
        let store = LogStore::new(log, Arc::default(), progress);
        Ok((dir, store, machine))
    }
}

type Checks = Suite<TypeConfig, LogStore, Machine, Stores, tempfile::TempDir>;

macro_rules! checks {
    ($($check:ident,)*) => {$(
        #[tokio::test]
        async fn $check() {
            let (_dir, store, machine) = Stores.build().await.unwrap();
            Checks::$check(store, machine).await.unwrap();
        }
    )*};
}

mod suite {
    use super::*;

    checks! {
        last_membership_in_log_initial,
        last_membership_in_log,
        last_membership_in_log_multi_step,
        get_membership_initial,
        get_membership_from_log_and_empty_sm,
        get_membership_from_empty_log_and_sm,
        get_membership_from_log_le_sm_last_applied,
        get_membership_from_log_gt_sm_last_applied_1,
        get_membership_from_log_gt_sm_last_applied_2,
        get_initial_state_without_init,
        get_initial_state_membership_from_empty_log_and_sm,
        get_initial_state_membership_from_sm_inlog_is_smaller,
        get_initial_state_membership_from_log_insm_is_smaller,
        get_initial_state_with_state,
        get_initial_state_last_log_gt_sm,
        get_initial_state_last_log_lt_sm,
        get_initial_state_inverted_log_order,
        get_initial_state_conflict_at_same_index,
        get_initial_state_re_apply_committed,
        save_vote,
        get_log_entries,
        limited_get_log_entries,
        leader_bounded_stream,
        entries_stream,
        try_get_log_entry,
        log_reader_reads_new_entries,
        initial_logs,
        get_log_state,
        get_log_id,
        last_id_in_log,
        last_applied_state,
        purge_logs_upto_0,
        purge_logs_upto_5,
        purge_logs_upto_20,
        delete_logs_after_11,
        delete_logs_after_5,
        delete_logs_after_0,
        delete_logs_after_none,
        append_to_log,
        snapshot_meta,
        snapshot_meta_optional,
        apply_single,
        apply_multiple,
    }
}
