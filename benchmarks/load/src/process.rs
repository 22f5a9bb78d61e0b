//! Processor time and memory that the server's process has used, as the kernel counts it.

use std::fs;
use std::io;

/// ns of CPU of all its threads. It does not include those that have ended; servers keep theirs.
pub fn cpu(pid: u32) -> io::Result<u64> {
    let mut total = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        let first = text.split_whitespace().next().and_then(|field| field.parse::<u64>().ok());
        total += first.ok_or_else(|| io::Error::other("/proc/PID/task/TID/schedstat is empty"))?;
    }
    Ok(total)
}

/// Resident bytes. From the pages themselves: the count in `status` lags by a few dozen pages.
pub fn resident(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| io::Error::other("no Rss in /proc/PID/smaps_rollup"))? * 1024)
}
