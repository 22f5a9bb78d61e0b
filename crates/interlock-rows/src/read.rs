//! Commands that read one row, and their replies.

use std::sync::LazyLock;
use std::time::Duration;

use interlock_table::Schema;

use crate::glob;
use crate::parse::{column, Arguments, Declared};
use crate::refusal::Refusal;
use crate::text::integer;
use crate::view::View;
use crate::write::Writer;

/// The commands that read a row of a table; their first argument is the row's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    Hget,
    Hmget,
    Hgetall,
    Hkeys,
    Hvals,
    Hlen,
    Hexists,
    Hstrlen,
    Hscan,
    Type,
    Ttl,
    Pttl,
    Expiretime,
    Pexpiretime,
}

/// A parsed read of one row. Columns are given by their indexes in the schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Query<'a> {
    /// HGET.
    Value(usize),
    /// HMGET.
    Values(Vec<usize>),
    /// HGETALL.
    Pairs,
    /// HKEYS.
    Names,
    /// HVALS.
    All,
    /// HLEN.
    Count,
    /// HEXISTS; whether the schema has the column.
    Has(bool),
    /// HSTRLEN.
    Length(usize),
    /// HSCAN of the matching columns; if the row does not exist, wrong options are not refused.
    Scan(Result<&'a [u8], Refusal>),
    /// TYPE.
    Type,
    /// TTL, PTTL, EXPIRETIME and PEXPIRETIME: the remaining time to live, or the expiry.
    Life { seconds: bool, since_1970: bool },
}

impl Read {
    /// All commands with their names and their numbers of words, as in
    /// [`Verb::ALL`](crate::Verb::ALL).
    pub const ALL: [(Read, &'static str, i32); 14] = [
        (Read::Hget, "hget", 3),
        (Read::Hmget, "hmget", -3),
        (Read::Hgetall, "hgetall", 2),
        (Read::Hkeys, "hkeys", 2),
        (Read::Hvals, "hvals", 2),
        (Read::Hlen, "hlen", 2),
        (Read::Hexists, "hexists", 3),
        (Read::Hstrlen, "hstrlen", 3),
        (Read::Hscan, "hscan", -3),
        (Read::Type, "type", 2),
        (Read::Ttl, "ttl", 2),
        (Read::Pttl, "pttl", 2),
        (Read::Expiretime, "expiretime", 2),
        (Read::Pexpiretime, "pexpiretime", 2),
    ];

    /// Returns the command that these words begin with; `None`: not a command of this kind. Errors:
    /// too few or too many words.
    pub fn of<'a>(arguments: impl Arguments<'a>) -> Result<Option<Read>, Refusal> {
        DECLARED.find(arguments)
    }

    /// Returns whether the reply depends on the current time; for the other commands any `now` will
    /// do.
    #[inline]
    pub fn is_of_time(self) -> bool {
        matches!(self, Read::Expiretime | Read::Pexpiretime)
    }
}

static DECLARED: LazyLock<Declared<Read>> = LazyLock::new(|| Declared::new(&Read::ALL));

impl<'a> Query<'a> {
    /// Parses the query. The caller has checked the command's minimum number of arguments.
    pub fn parse(
        read: Read,
        schema: &Schema,
        arguments: impl Arguments<'a>,
    ) -> Result<Query<'a>, Refusal> {
        let column = |index| column(schema, arguments.at(index)).map(|(at, _)| at);
        Ok(match read {
            Read::Hget => Query::Value(column(2)?),
            Read::Hmget => {
                Query::Values((2..arguments.count()).map(column).collect::<Result<_, _>>()?)
            }
            Read::Hgetall => Query::Pairs,
            Read::Hkeys => Query::Names,
            Read::Hvals => Query::All,
            Read::Hlen => Query::Count,
            Read::Hexists => Query::Has(column(2).is_ok()),
            Read::Hstrlen => Query::Length(column(2)?),
            Read::Hscan => {
                cursor(arguments.at(2))?;
                Query::Scan(pattern(arguments))
            }
            Read::Type => Query::Type,
            Read::Ttl => Query::Life { seconds: true, since_1970: false },
            Read::Pttl => Query::Life { seconds: false, since_1970: false },
            Read::Expiretime => Query::Life { seconds: true, since_1970: true },
            Read::Pexpiretime => Query::Life { seconds: false, since_1970: true },
        })
    }

    /// Returns whether the command counts as an access to the row.
    #[inline]
    pub fn is_access(&self) -> bool {
        use Query::{All, Length, Pairs, Scan, Value, Values};
        matches!(self, All | Length(_) | Pairs | Scan(_) | Value(_) | Values(_))
    }

    /// Writes the reply, which depends only on the arguments. `now`: µs since 1970.
    #[inline]
    pub fn answer(
        &self,
        schema: &Schema,
        view: &impl View,
        now: u64,
        to: &mut Writer<'_>,
    ) -> Result<(), Refusal> {
        let there = view.is_there();
        let columns = if there { schema.columns() } else { &[] };
        match self {
            Query::Value(column) if there => view.put(*column, to),
            Query::Value(_) => to.null(),
            Query::Values(columns) => {
                to.array(columns.len());
                columns.iter().for_each(|column| match there {
                    true => view.put(*column, to),
                    false => to.null(),
                });
            }
            Query::Pairs => {
                to.map(columns.len());
                columns.iter().enumerate().for_each(|(at, column)| {
                    to.bulk(column.name.as_bytes());
                    view.put(at, to);
                });
            }
            Query::Names => {
                to.array(columns.len());
                columns.iter().for_each(|column| to.bulk(column.name.as_bytes()));
            }
            Query::All => {
                to.array(columns.len());
                (0..columns.len()).for_each(|column| view.put(column, to));
            }
            Query::Count => to.integer(columns.len() as i64),
            Query::Has(known) => to.integer((there && *known).into()),
            Query::Length(column) => {
                to.integer(if there { view.length(*column) as i64 } else { 0 });
            }
            Query::Scan(pattern) => {
                let pattern =
                    if there { pattern.as_ref().map_err(Refusal::clone)? } else { &b""[..] };
                let matching = columns.iter().enumerate();
                let matching =
                    matching.filter(|(_, column)| glob::matches(pattern, column.name.as_bytes()));
                to.array(2);
                to.bulk(b"0");
                to.array(matching.clone().count() * 2);
                matching.for_each(|(at, column)| {
                    to.bulk(column.name.as_bytes());
                    view.put(at, to);
                });
            }
            Query::Type => to.simple(if there { "hash" } else { "none" }),
            Query::Life { .. } if !there => to.integer(-2),
            Query::Life { seconds, since_1970 } => to.integer(match view.left() {
                None => -1,
                Some(left) => {
                    let ms = if *since_1970 { since_the_epoch(now, left) } else { ms(left) };
                    // Rounded to the nearest second, as in Redis.
                    if *seconds {
                        ms.saturating_add(500) / 1000
                    } else {
                        ms
                    }
                }
            }),
        }
        Ok(())
    }
}

/// Writes the values of all columns of a row in order, or null if the row does not exist.
#[inline]
pub fn row(schema: &Schema, view: &impl View, to: &mut Writer<'_>) {
    if !view.is_there() {
        return to.null();
    }
    to.array(schema.columns().len());
    (0..schema.columns().len()).for_each(|column| view.put(column, to));
}

fn ms(left: Duration) -> i64 {
    left.as_millis() as i64
}

/// Returns the expiry of a row that has this time left, rounded to the nearest ms since 1970.
fn since_the_epoch(now: u64, left: Duration) -> i64 {
    let micros = u128::from(now) + left.as_micros();
    i64::try_from((micros + 500) / 1000).unwrap_or(i64::MAX)
}

/// Refuses a cursor that C's `strtoul` would not parse. The reply has the whole row, whatever the
/// cursor.
fn cursor(text: &[u8]) -> Result<(), Refusal> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
    match digits.is_some_and(|text| text.parse::<u64>().is_ok()) {
        true => Ok(()),
        false => Err("ERR invalid cursor".into()),
    }
}

/// Returns the pattern among the options of HSCAN.
fn pattern<'a>(arguments: impl Arguments<'a>) -> Result<&'a [u8], Refusal> {
    let mut pattern: &[u8] = b"*";
    for index in (3..arguments.count()).step_by(2) {
        if index + 1 == arguments.count() {
            return Err("ERR syntax error".into());
        }
        let (word, value) = (arguments.at(index), arguments.at(index + 1));
        if word.eq_ignore_ascii_case(b"match") {
            pattern = value;
            continue;
        }
        let is_count = word.eq_ignore_ascii_case(b"count");
        if !is_count || integer(value).ok_or_else(Refusal::no_integer)? < 1 {
            return Err("ERR syntax error".into());
        }
    }
    match glob::refusal(pattern) {
        Some(text) => Err(text.into()),
        None => Ok(pattern),
    }
}
