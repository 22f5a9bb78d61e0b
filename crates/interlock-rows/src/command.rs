//! Parsed commands on one row.

use std::time::Duration;

use interlock_table::{By, Given, Overflow, Ttl, Value, Where};

use crate::limits::MAX_ROW_TTL;
use crate::refusal::Refusal;

/// A command that may change a row. A column is given by its index in the schema; its value fits
/// the column.
#[derive(Clone, Debug, PartialEq)]
pub enum Command<'a> {
    /// HSET, and HMSET, whose reply is OK.
    Set { pairs: Pairs<'a>, ok: bool },
    /// HSETNX: creates a row with this column unless the row exists.
    SetNew { pair: Given<'a> },
    /// HDEL: the first of the named columns that the schema has.
    DeleteColumn { column: Option<usize> },
    /// HINCRBY and HINCRBYFLOAT, whose reply is a string.
    Raise { column: usize, by: By, float: bool },
    /// DEL and UNLINK, of one key.
    Delete,
    /// PERSIST.
    Persist,
    /// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT; `name` is the command's name.
    Expire { name: &'static str, life: Life, when: Condition },
    /// TABLE SET: sets the whole row.
    Put { given: Vec<Given<'a>>, on: Where, ttl: Ttl },
    /// TABLE PATCH: sets columns of an existing row.
    Patch { pairs: Pairs<'a> },
    /// TABLE INCR.
    Increase { column: usize, by: By, overflow: Overflow },
    /// TABLE CAS: sets the column if it has the expected value. A value that does not fit the
    /// column is refused late, as in `Pairs`.
    CompareAndSet { expected: Value<'a>, pair: Result<Given<'a>, Refusal> },
    /// TABLE POP.
    Pop,
}

/// Columns and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs<'a> {
    pub given: Vec<Given<'a>>,
    /// The first value of the right type that is too large or too long for its column. The command
    /// is refused only when the row is written, not if it writes nothing.
    pub late: Option<Refusal>,
}

/// A row's new lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// This many µs from now.
    For(i128),
    /// Until this time, in µs since 1970; it may be in the past.
    Until(i128),
}

/// The condition for changing a row's expiry: NX, XX, GT, LT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub without: bool,
    pub with: bool,
    pub greater: bool,
    pub less: bool,
}

impl Command<'_> {
    /// Returns false if the command changes nothing and replies 0, whatever the row and its key.
    pub fn is_of_row(&self) -> bool {
        !matches!(self, Command::DeleteColumn { column: None })
    }
}

impl Pairs<'_> {
    pub fn check(&self) -> Result<(), Refusal> {
        self.late.clone().map_or(Ok(()), Err)
    }
}

impl Life {
    /// Returns the remaining time. `now`: µs since 1970; `name`: the command's name. Errors: the
    /// time is longer than a row may live.
    pub fn left(self, name: &str, now: u64) -> Result<Duration, Refusal> {
        let micros = match self {
            Life::For(micros) => micros,
            Life::Until(time) => time - i128::from(now),
        };
        if micros > i128::from(MAX_ROW_TTL) * 1000 {
            return Err(format!("ERR invalid expire time in '{name}' command").into());
        }
        // A time in the past expires the row at once.
        Ok(Duration::from_micros(micros.max(0) as u64))
    }
}

impl Condition {
    /// Returns whether the condition holds. A row that never expires counts as longer than any
    /// time.
    pub fn allows(&self, before: Option<Duration>, left: Duration) -> bool {
        let refused = self.without && before.is_some()
            || self.with && before.is_none()
            || self.greater && before.is_none_or(|before| left <= before)
            || self.less && before.is_some_and(|before| left >= before);
        !refused
    }
}
