//! Where tasks run: on tokio. In a simulation, in the process of the node that starts them, see `crate::sim`.

use std::future::Future;

use tokio::task::{JoinError, JoinHandle};

#[cfg(not(feature = "sim"))]
pub(crate) use crate::beat::BeatRuntime as Runtime;
#[cfg(feature = "sim")]
pub(crate) use crate::sim::runtime::Runtime;

/// Starts a task of a group or of its handler.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    use openraft::AsyncRuntime;
    Runtime::spawn(future)
}

/// Runs what waits for the device, on a thread that may block.
///
/// # Errors
/// It panicked, or the runtime ends.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(feature = "sim")]
    if crate::sim::is_simulated() {
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await
}
