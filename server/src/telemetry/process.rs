//! What the system says about this process.

use tokio::runtime::Handle;

/// What it takes now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessFigures {
    /// Memory that is resident, in bytes; 0 where the system does not say.
    pub resident_bytes: u64,
    /// Tasks that are under way.
    pub tasks: u64,
}

impl ProcessFigures {
    /// Within a runtime; outside of one there are no tasks.
    #[must_use]
    pub fn now() -> Self {
        let tasks = Handle::try_current().map_or(0, |runtime| runtime.metrics().num_alive_tasks());
        Self {
            // Made by the kernel on the spot, not read from a disk.
            resident_bytes: std::fs::read_to_string("/proc/self/status")
                .ok()
                .and_then(|status| resident_bytes(&status))
                .unwrap_or(0),
            tasks: tasks as u64,
        }
    }
}

/// Out of `/proc/PID/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_its_line() {
        let status = "Name:\tboltq\nVmHWM:\t  9000 kB\nVmRSS:\t  7168 kB\nThreads:\t4\n";
        assert_eq!(resident_bytes(status), Some(7_340_032));
        for other in ["", "VmRSS:\n", "VmRSS: 1 MB\n", "VmRSS: x kB\n"] {
            assert_eq!(resident_bytes(other), None, "{other}");
        }
    }

    #[tokio::test]
    async fn this_process_has_memory_and_tasks() {
        let _task = tokio::spawn(std::future::pending::<()>());
        let now = ProcessFigures::now();
        assert!(now.resident_bytes > 100 << 10 && now.tasks >= 1, "{now:?}");
    }
}
