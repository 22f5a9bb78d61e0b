//! Converts a time to the dates and hours used in file names.

/// The clock that names of files follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Zone {
    #[default]
    Utc,
    /// The machine's own. At the end of summer time an hour comes twice.
    Local,
}

/// A moment as a clock on the wall has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub year: i64,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub minute: u32,
    pub second: u32,
}

const SECOND: u64 = 1_000_000;
const DAY: i64 = 86_400;

impl Zone {
    /// Returns the seconds since 1970 that this clock shows, counted as if each day had 86,400.
    pub fn seconds(self, time: u64) -> i64 {
        // Whoever gives a time beyond the year 9999 gets that year: names have four digits for it.
        let seconds = (time / SECOND).min(LAST_SECOND) as i64;
        match self {
            Zone::Utc => seconds,
            Zone::Local => seconds + offset(seconds),
        }
    }

    pub fn moment(self, time: u64) -> Moment {
        let seconds = self.seconds(time).max(0);
        let (days, rest) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY) as u32);
        let (year, month, day) = civil(days);
        let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
        Moment { year, month, day, hour, minute, second }
    }
}

/// The last second of the year 9999, without its last day: no zone leads behind it.
const LAST_SECOND: u64 = 253_402_300_799 - 86_400;

/// Returns the number of seconds by which the machine's time zone is ahead of UTC.
fn offset(seconds: i64) -> i64 {
    // SAFETY: the structure is plain numbers and a pointer that nobody reads; both pointers live here.
    unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut parts).is_null() {
            return 0;
        }
        parts.tm_gmtoff
    }
}

/// The date of a day, counted from 1970 (Howard Hinnant's `civil_from_days`).
fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = (of_year - (153 * month + 2) / 5 + 1) as u32;
    let month = if month < 10 { month + 3 } else { month - 9 } as u32;
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use crate::calendar::*;

    fn text(time: u64) -> String {
        let Moment { year, month, day, hour, minute, second } = Zone::Utc.moment(time);
        format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00"),
            (68_169_599, "1972-02-28 23:59:59"),
            (68_169_600, "1972-02-29 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_431_617, "2026-11-23 11:00:17"),
            (4_107_542_400, "2100-03-01 00:00:00"),
        ] {
            assert_eq!(text(seconds * SECOND + 999_999), expected);
        }
        assert_eq!(text(u64::MAX), "9999-12-30 23:59:59");
    }

    #[test]
    fn the_machines_zone_is_less_than_a_day_ahead_or_behind() {
        for seconds in [0, 1_795_436_417, LAST_SECOND] {
            let local = Zone::Local.seconds(seconds * SECOND);
            assert!(local.abs_diff(seconds as i64) < DAY as u64);
            Zone::Local.moment(seconds * SECOND);
        }
        Zone::Local.moment(u64::MAX);
    }
}
