//! Commands on one row, as they were asked for.

use std::time::Duration;

use interlock_table::{By, Given, Overflow, Ttl, Value, Where};

use crate::limits::MAX_ROW_TTL;
use crate::refusal::Refusal;

/// A command that may change a row. Columns are given by their places in the schema; values are such as
/// their columns can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Command<'a> {
    /// HSET, and HMSET, whose reply is OK.
    Set { pairs: Pairs<'a>, ok: bool },
    /// HSETNX: a row with this column, if there is none.
    SetNew { pair: Given<'a> },
    /// HDEL: of the named columns the first that there is.
    DeleteColumn { column: Option<usize> },
    /// HINCRBY and HINCRBYFLOAT, whose reply is a string.
    Raise { column: usize, by: By, float: bool },
    /// DEL and UNLINK, of one key.
    Delete,
    /// PERSIST.
    Persist,
    /// EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT; `name` is that of the command.
    Expire { name: &'static str, life: Life, when: Condition },
    /// TABLE SET: the row as a whole.
    Put { given: Vec<Given<'a>>, on: Where, ttl: Ttl },
    /// TABLE PATCH: columns of a row that is there.
    Patch { pairs: Pairs<'a> },
    /// TABLE INCR.
    Increase { column: usize, by: By, overflow: Overflow },
    /// TABLE CAS: sets the column if it is as expected. A value that it cannot hold is found as with `Pairs`.
    CompareAndSet { expected: Value<'a>, pair: Result<Given<'a>, Refusal> },
    /// TABLE POP.
    Pop,
}

/// Columns and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs<'a> {
    pub given: Vec<Given<'a>>,
    /// The first value that its column cannot hold, where the column is of such values: that is found when
    /// the row is written, and not where nothing is.
    pub late: Option<Refusal>,
}

/// The life that a row is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// So many µs from now.
    For(i128),
    /// Up to this time in µs since 1970, which may be over.
    Until(i128),
}

/// The condition on which another time to live is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub without: bool,
    pub with: bool,
    pub greater: bool,
    pub less: bool,
}

impl Command<'_> {
    /// Returns false if it changes nothing and answers 0, whatever the row and its key are.
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
    /// Time that is left; `now`: µs since 1970, `name` is that of the command. Errors: longer than any row
    /// may live.
    pub fn left(self, name: &str, now: u64) -> Result<Duration, Refusal> {
        let micros = match self {
            Life::For(micros) => micros,
            Life::Until(time) => time - i128::from(now),
        };
        if micros > i128::from(MAX_ROW_TTL) * 1000 {
            return Err(format!("ERR invalid expire time in '{name}' command").into());
        }
        // What is over has expired at once.
        Ok(Duration::from_micros(micros.max(0) as u64))
    }
}

impl Condition {
    /// For ever is longer than any time.
    pub fn allows(&self, before: Option<Duration>, left: Duration) -> bool {
        let refused = self.without && before.is_some()
            || self.with && before.is_none()
            || self.greater && before.is_none_or(|before| left <= before)
            || self.less && before.is_some_and(|before| left >= before);
        !refused
    }
}
