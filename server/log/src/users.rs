//! Who changes the directory beside the threads of the log: whoever writes a checkpoint, or installs a state.
//!
//! The threads end with the log; these are callers, and a log may be closed under them. The lock of the directory must not be given
//! back before the last of them is done with it: the next holder would see files come and go.

use parking_lot::{RwLock, RwLockReadGuard};

use crate::error::AppendError;

/// Shared while the directory is changed. What it holds is whether that is over for ever.
#[derive(Debug, Default)]
pub(crate) struct Users {
    closed: RwLock<bool>,
}

/// While there is one, the directory is not given back.
pub(crate) type User<'a> = RwLockReadGuard<'a, bool>;

impl Users {
    /// May be called by who is one already.
    ///
    /// # Errors
    /// The log was closed.
    pub(crate) fn enter(&self) -> Result<User<'_>, AppendError> {
        let closed = self.closed.read_recursive();
        if *closed { Err(AppendError::Closed) } else { Ok(closed) }
    }

    /// Waits for those that are there, and refuses all others.
    pub(crate) fn close(&self) {
        *self.closed.write() = true;
    }
}
