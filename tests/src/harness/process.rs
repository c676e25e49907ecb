//! What `/proc` says about a process.

use std::time::Duration;

/// Of Linux on every platform that it runs on; `sysconf(_SC_CLK_TCK)` says the same.
const CLOCK_TICKS_PER_SECOND: u64 = 100;

/// What a process used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a processor, in user mode and in the kernel.
    pub cpu: Duration,
}

/// Reads the figures of one process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessStat {
    pid: u32,
}

impl ProcessStat {
    /// Of the process `pid`.
    pub fn of(pid: u32) -> Self {
        Self { pid }
    }

    /// Its id.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Resident memory now, in bytes.
    pub fn rss_bytes(self) -> u64 {
        self.status_kib("VmRSS:") * 1024
    }

    /// The most memory that was ever resident, in bytes.
    pub fn peak_rss_bytes(self) -> u64 {
        self.status_kib("VmHWM:") * 1024
    }

    fn status_kib(self, key: &str) -> u64 {
        let status = self.read("status");
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let number = line.and_then(|line| line.split_whitespace().next());
        number
            .and_then(|number| number.parse().ok())
            .unwrap_or_else(|| panic!("{key} of process {}", self.pid))
    }

    /// Number of open file descriptors.
    pub fn open_files(self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid))
            .expect("a process that runs")
            .count()
    }

    /// Time used so far.
    pub fn usage(self) -> Usage {
        let stat = self.read("stat");
        // The name of the executable stands in parentheses and may hold spaces; fields are counted behind it.
        let (_, fields) = stat.rsplit_once(") ").expect("a stat line");
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks: u64 = fields[11].parse::<u64>().expect("utime") + fields[12].parse::<u64>().expect("stime");
        Usage {
            cpu: Duration::from_millis(ticks * 1000 / CLOCK_TICKS_PER_SECOND),
        }
    }

    fn read(self, file: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{file}", self.pid))
            .unwrap_or_else(|error| panic!("process {}: {error}; did it end?", self.pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_memory_and_time() {
        let this = ProcessStat::of(std::process::id());
        assert!(this.rss_bytes() > 100 * 1024);
        assert!(this.peak_rss_bytes() >= this.rss_bytes() / 2);
        assert!(this.open_files() >= 3);
        let started = std::time::Instant::now();
        while this.usage().cpu == Duration::ZERO {
            assert!(started.elapsed() < Duration::from_secs(10));
        }
    }
}
