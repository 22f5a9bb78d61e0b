//! A row as a command sees it.

use std::time::Duration;

use interlock_rows::View;
use interlock_table::{Ttl, Value};

use super::Settings;
use crate::stamp::{self, Stamp};
use crate::state::{self, Rules};

/// The state of a row, and the circumstances of a command.
pub(super) struct Seen<'a> {
    pub(super) settings: &'a Settings,
    pub(super) state: Option<&'a [u8]>,
    pub(super) stamp: Stamp<'a>,
    pub(super) now: u64,
}

impl<'a> Seen<'a> {
    pub(super) fn view(&self) -> Viewed<'a> {
        let view = self.settings.rules.view_of(self.state, self.now);
        Viewed {
            settings: self.settings,
            state: self.state,
            stamp: self.stamp,
            now: self.now,
            view,
        }
    }
}

/// The row that a state shows at the time of a command.
pub(super) struct Viewed<'a> {
    pub(super) settings: &'a Settings,
    pub(super) state: Option<&'a [u8]>,
    pub(super) stamp: Stamp<'a>,
    pub(super) now: u64,
    pub(super) view: state::View<'a>,
}

impl View for Viewed<'_> {
    fn is_there(&self) -> bool {
        self.view.is_there()
    }

    fn value(&self, column: usize) -> Value<'_> {
        self.view.value(column)
    }

    fn left(&self) -> Option<Duration> {
        let expires_at = self.view.expires_at();
        (expires_at > 0).then(|| Duration::from_millis(expires_at.saturating_sub(self.now)))
    }

    fn expiry(&self, ttl: Ttl) -> u64 {
        let left = match ttl {
            Ttl::Usual if self.settings.ttl > 0 => self.settings.ttl,
            Ttl::Usual | Ttl::Never => return 0,
            Ttl::For(left) => left.as_millis().try_into().unwrap_or(u64::MAX),
        };
        // 0 means for ever, and no time after the last has readings.
        self.now.saturating_add(left).clamp(1, stamp::LATEST_MS)
    }

    fn raised(&self, column: usize, to: Value<'static>) -> Value<'static> {
        let rules: &Rules = &self.settings.rules;
        if rules.merges()[column] == state::Merge::Last {
            return to;
        }
        rules.raised(&self.view, column, &to, &self.stamp)
    }
}
