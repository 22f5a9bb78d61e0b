//! Time for queues that continues across a restart of the hub: it follows the monotonic clock,
//! which runs until the machine reboots. A wall clock that is wrong at startup therefore changes no
//! deadline.
//!
//! A file in the journal's folder says which boot it was, and the time at which its monotonic clock was zero.

use std::fs;
use std::path::Path;

use crate::system::time::Time;

/// Returns the time at which the monotonic clock was zero, as the hub before had it in this same boot.
pub fn known(folder: &Path) -> Option<Time> {
    let text = fs::read_to_string(folder.join(NAME)).ok()?;
    let (boot, zero) = text.trim_end().rsplit_once(' ')?;
    let zero = zero.parse().ok().filter(|&zero| zero < LATEST);
    (boot == this_boot()?).then_some(zero)?
}

/// Notes it for the hubs that follow. Where that fails they go by the wall clock.
pub fn note(folder: &Path, zero: Time) {
    let Some(boot) = this_boot() else { return };
    let made = folder.join("clock.new");
    if fs::write(&made, format!("{boot} {zero}\n")).is_ok() {
        let _ = fs::rename(made, folder.join(NAME));
    }
}

/// The boot, and the namespace of clocks that this process sees in it.
fn this_boot() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let clocks = fs::read_link("/proc/self/ns/time").unwrap_or_default();
    Some(format!("{} {}", boot.trim_end(), clocks.display()))
}

const NAME: &str = "clock";
/// In the year 2112, µs since 1970. A file with a later time is damaged: queues would have that time for ever.
const LATEST: Time = 1 << 52;

#[cfg(test)]
mod tests {
    use crate::system::boot_time::*;

    #[test]
    fn a_stored_time_is_valid_only_for_its_boot() {
        let folder = std::env::temp_dir().join(format!("interlock-boot-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert_eq!(known(&folder), None);
        note(&folder, 1_700_000_000_000_000);
        assert_eq!(known(&folder), Some(1_700_000_000_000_000));
        for text in ["", "x", "another-boot time:[1] 5", "5\n"] {
            fs::write(folder.join(NAME), text).unwrap();
            assert_eq!(known(&folder), None, "{text}");
        }
        let boot = this_boot().unwrap();
        for damaged in [LATEST, 1 << 62, 1 << 63, Time::MAX] {
            fs::write(folder.join(NAME), format!("{boot} {damaged}\n")).unwrap();
            assert_eq!(known(&folder), None, "{damaged}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
