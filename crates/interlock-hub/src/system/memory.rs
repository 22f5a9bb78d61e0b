//! INFO's section of memory: what the kernel counts for this process.

use std::fs;

pub fn figures() -> Vec<(&'static str, String)> {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let figure = |name, field| (name, kilobytes(&text, field).to_string());
    vec![
        figure("used_memory", "VmRSS:"),
        figure("used_memory_rss", "VmRSS:"),
        figure("used_memory_rss_peak", "VmHWM:"),
    ]
}

/// Bytes of a line such as `VmRSS:   5168 kB`; 0 where /proc does not tell.
fn kilobytes(text: &str, field: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use crate::system::memory::*;

    #[test]
    fn a_line_in_kilobytes_is_converted_to_bytes() {
        let text = "VmHWM:\t    9000 kB\nVmRSS:\t    5168 kB\n";
        assert_eq!(kilobytes(text, "VmRSS:"), 5168 * 1024);
        assert_eq!(kilobytes(text, "VmPeak:"), 0);
        assert_eq!(kilobytes("VmRSS: x kB", "VmRSS:"), 0);
    }

    #[test]
    fn this_process_uses_memory_and_no_more_than_its_peak() {
        let figures = figures();
        let [now, peak] = [0, 1].map(|n| figures[n].1.parse::<u64>().unwrap());
        assert!(0 < now && now <= peak, "{figures:?}");
    }
}
