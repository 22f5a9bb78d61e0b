//! The options of a message as they are returned: those that differ from the defaults.

use interlock_core::queue::calls::coalesce::Named;
use interlock_core::queue::types::{Behind, RetryPart};

use crate::calls::read::Strings;
use crate::queue::declare::OneOf;
use crate::values::words::to_bytes;
use crate::wire::options::MessageOption;

/// The options that a message was put with, as far as they are kept.
pub struct Given<'a> {
    pub priority: i8,
    pub dedup: Option<&'a str>,
    pub window: Option<u64>,
    pub barrier: bool,
    pub result: u64,
    pub quiet: bool,
    pub retry: Option<&'a RetryPart>,
    /// Its limit names, joined.
    pub limit: Vec<u8>,
    /// Its group; empty: none.
    pub group: &'a [u8],
    pub coalesced: Option<&'a Named>,
    /// Its own value of what happens to it behind a failure.
    pub behind: Option<Behind>,
    /// Its run; empty: none.
    pub run: &'a [u8],
}

impl Given<'_> {
    /// Returns their names and values.
    pub fn told(&self) -> Strings {
        let mut told = Strings::default();
        for option in MessageOption::ALL {
            if let Some(value) = self.value(option) {
                told.text(option.name().as_bytes());
                told.text(&value);
            }
        }
        told
    }

    fn value(&self, option: MessageOption) -> Option<Vec<u8>> {
        let number = |number: u64| number.to_string().into_bytes();
        let yes = |is_set: bool| is_set.then(|| b"1".to_vec());
        let retry = self.retry;
        match option {
            MessageOption::Priority if self.priority == 0 => None,
            MessageOption::Priority => Some(self.priority.to_string().into_bytes()),
            // It has a place, or its own due time.
            MessageOption::Delay => None,
            // A condition of the put.
            MessageOption::After => None,
            MessageOption::Dedup => self.dedup.map(|name| to_bytes(name).into_owned()),
            MessageOption::Window => self.window.map(number),
            MessageOption::Barrier => yes(self.barrier),
            MessageOption::Result => Some(self.result).filter(|&span| span > 0).map(number),
            MessageOption::Quiet => yes(self.quiet),
            MessageOption::Limit => Some(self.limit.clone()).filter(|names| !names.is_empty()),
            MessageOption::Group => Some(self.group.to_vec()).filter(|group| !group.is_empty()),
            MessageOption::Coalesce => self.coalesced.map(|named| named.name.to_vec()),
            // It has its own due time.
            MessageOption::Debounce | MessageOption::Within => None,
            MessageOption::Revision => {
                let times = self.coalesced.map_or(0, |named| u64::from(named.revision));
                (times > 0).then(|| number(times))
            }
            MessageOption::Run => Some(self.run.to_vec()).filter(|run| !run.is_empty()),
            MessageOption::Behind => self.behind.map(|one| one.word().as_bytes().to_vec()),
            MessageOption::Attempts => retry?.attempts.map(|most| number(most.unwrap_or(0).into())),
            MessageOption::First => retry?.first.map(number),
            MessageOption::Factor => retry?.factor.map(|by| number((by * 1000.0).round() as u64)),
            MessageOption::Longest => retry?.longest.map(number),
            MessageOption::Jitter => retry?.jitter.map(|jitter| number(jitter.into())),
            MessageOption::Then => retry?.then.map(|then| then.name().as_bytes().to_vec()),
        }
    }
}
