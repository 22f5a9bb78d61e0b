//! Parses commands. Resolving the names of tables and rows is up to the caller.

use std::sync::LazyLock;
use std::time::Duration;

use interlock_table::{By, Column, Form, Given, Overflow, Schema, Ttl, Value, Where};

use crate::command::{Command, Condition, Life, Pairs};
use crate::names::Names;
use crate::refusal::Refusal;
use crate::text::{fits, given, increment, integer};

/// The words of a client's command: its name and arguments.
pub trait Arguments<'a>: Copy {
    fn count(self) -> usize;
    /// Returns the word at `index`, or an empty one if there are fewer words.
    fn at(self, index: usize) -> &'a [u8];
}

impl<'a, T: AsRef<[u8]>> Arguments<'a> for &'a [T] {
    fn count(self) -> usize {
        self.len()
    }

    fn at(self, index: usize) -> &'a [u8] {
        self.get(index).map_or(&[], AsRef::as_ref)
    }
}

/// The commands that may change rows of a table and name their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Hset,
    Hmset,
    Hsetnx,
    Hdel,
    Hincrby,
    Hincrbyfloat,
    Del,
    Persist,
    Expire,
    Pexpire,
    Expireat,
    Pexpireat,
    TableSet,
    /// Sets [`Rows`]; not a [`Command`] on one row.
    TableMset,
    TablePatch,
    TableIncr,
    TableCas,
    TablePop,
}

/// The prefix of the names of TABLE's subcommands.
const TABLE: &str = "table|";

impl Verb {
    /// All commands with their names (a subcommand after a bar) and their numbers of words, name
    /// included: exactly this many, or, if negative, at least this many.
    pub const ALL: [(Verb, &'static str, i32); 19] = [
        (Verb::Hset, "hset", -4),
        (Verb::Hmset, "hmset", -4),
        (Verb::Hsetnx, "hsetnx", 4),
        (Verb::Hdel, "hdel", -3),
        (Verb::Hincrby, "hincrby", 4),
        (Verb::Hincrbyfloat, "hincrbyfloat", 4),
        (Verb::Del, "del", -2),
        (Verb::Del, "unlink", -2),
        (Verb::Persist, "persist", 2),
        (Verb::Expire, "expire", -3),
        (Verb::Pexpire, "pexpire", -3),
        (Verb::Expireat, "expireat", -3),
        (Verb::Pexpireat, "pexpireat", -3),
        (Verb::TableSet, "table|set", -5),
        (Verb::TableMset, "table|mset", -6),
        (Verb::TablePatch, "table|patch", -5),
        (Verb::TableIncr, "table|incr", -5),
        (Verb::TableCas, "table|cas", 6),
        (Verb::TablePop, "table|pop", 3),
    ];

    /// The index of the word that names the row, or the first row; for `TableMset` the table.
    pub fn row_at(self) -> usize {
        use Verb::{TableCas, TableIncr, TableMset, TablePatch, TablePop, TableSet};
        let is_of_table =
            matches!(self, TableCas | TableIncr | TableMset | TablePatch | TablePop | TableSet);
        1 + usize::from(is_of_table)
    }

    /// Returns the command that these words begin with; `None`: not a command of this kind. Errors:
    /// too few or too many words.
    pub fn of<'a>(arguments: impl Arguments<'a>) -> Result<Option<Verb>, Refusal> {
        DECLARED.find(arguments)
    }

    /// Returns whether the command depends on the current time; for the others any `now` will do.
    #[inline]
    pub fn is_of_time(self) -> bool {
        matches!(self, Verb::Expireat | Verb::Pexpireat)
    }
}

/// Commands by name, with their numbers of words.
pub(crate) struct Declared<T> {
    plain: Names<(T, &'static str, i32)>,
    of_table: Names<(T, &'static str, i32)>,
}

impl<T: Copy> Declared<T> {
    pub(crate) fn new(all: &[(T, &'static str, i32)]) -> Self {
        let of_table = all.iter().filter_map(|one| Some((one.1.strip_prefix(TABLE)?, *one)));
        let plain = all.iter().filter(|one| !one.1.starts_with(TABLE)).map(|one| (one.1, *one));
        Declared { plain: Names::new(plain), of_table: Names::new(of_table) }
    }

    /// Returns the command that the words begin with, after checking their number.
    pub(crate) fn find<'a>(&self, arguments: impl Arguments<'a>) -> Result<Option<T>, Refusal> {
        let name = arguments.at(0);
        let found = match name.eq_ignore_ascii_case(b"table") {
            true => self.of_table.find(arguments.at(1)),
            false => self.plain.find(name),
        };
        let Some((found, name, words)) = found else { return Ok(None) };
        let count = arguments.count() as i32;
        match count == words || words < 0 && count >= -words {
            true => Ok(Some(found)),
            false => Err(Refusal::wrong_count(name)),
        }
    }
}

static DECLARED: LazyLock<Declared<Verb>> = LazyLock::new(|| Declared::new(&Verb::ALL));

/// Parses a command on one row of a table with this schema. `now`: µs since 1970. Errors: the
/// command is wrong whatever the row is. The caller has checked the minimum number of arguments.
pub fn parse<'a>(
    verb: Verb,
    schema: &Schema,
    arguments: impl Arguments<'a>,
    now: u64,
) -> Result<Command<'a>, Refusal> {
    let column = |index| column(schema, arguments.at(index));
    match verb {
        Verb::Hset => Ok(Command::Set { pairs: pairs(schema, arguments, 2, "hset")?, ok: false }),
        Verb::Hmset => Ok(Command::Set { pairs: pairs(schema, arguments, 2, "hmset")?, ok: true }),
        Verb::Hsetnx => {
            let (at, column) = column(2)?;
            Ok(Command::SetNew { pair: (at, held(column, arguments.at(3))?) })
        }
        Verb::Hdel => {
            let found = (2..arguments.count()).find_map(|index| column(index).ok());
            Ok(Command::DeleteColumn { column: found.map(|(at, _)| at) })
        }
        Verb::Hincrby => {
            let (at, column) = column(2)?;
            let by = integer(arguments.at(3)).ok_or_else(Refusal::no_integer)?;
            if column.range().is_none() {
                return Err("ERR hash value is not an integer".into());
            }
            Ok(Command::Raise { column: at, by: By::Integer(by.into()), float: false })
        }
        Verb::Hincrbyfloat => {
            let (at, column) = column(2)?;
            if column.kind.form() != Form::Float {
                return Err("ERR hash value is not a float".into());
            }
            match increment(column, arguments.at(3))? {
                By::Float(by) if by.is_nan() => Err("ERR value is not a valid float".into()),
                By::Float(by) if by.is_infinite() => Err("ERR value is NaN or Infinity".into()),
                by => Ok(Command::Raise { column: at, by, float: true }),
            }
        }
        Verb::Del => Ok(Command::Delete),
        Verb::Persist => Ok(Command::Persist),
        Verb::Expire => expires(arguments, "expire", 1000, false, now),
        Verb::Pexpire => expires(arguments, "pexpire", 1, false, now),
        Verb::Expireat => expires(arguments, "expireat", 1000, true, now),
        Verb::Pexpireat => expires(arguments, "pexpireat", 1, true, now),
        Verb::TableSet => table_set(schema, arguments),
        Verb::TableMset => Err("ERR TABLE MSET is of several rows".into()),
        Verb::TablePatch => {
            Ok(Command::Patch { pairs: pairs(schema, arguments, 3, "table|patch")? })
        }
        Verb::TableIncr => {
            let (at, column) = column(3)?;
            let by = increment(column, arguments.at(4))?;
            let overflow = match arguments.at(5) {
                _ if arguments.count() < 6 => Overflow::Refuse,
                word if word.eq_ignore_ascii_case(b"wrap") => Overflow::Wrap,
                word if word.eq_ignore_ascii_case(b"saturate") => Overflow::Saturate,
                _ => return Err("ERR syntax error: WRAP or SATURATE".into()),
            };
            if arguments.count() > 6 {
                return Err(Refusal::wrong_count("table|incr"));
            }
            Ok(Command::Increase { column: at, by, overflow })
        }
        Verb::TableCas => compare_and_set(column(3)?, arguments),
        Verb::TablePop => Ok(Command::Pop),
    }
}

/// Returns the column of this name, and its index.
pub fn column<'s>(schema: &'s Schema, name: &[u8]) -> Result<(usize, &'s Column), Refusal> {
    let columns = schema.columns().iter().enumerate();
    let found = columns.into_iter().find(|(_, column)| column.name.as_bytes() == name);
    found.ok_or_else(|| Refusal::no_column(schema, name))
}

/// Parses a column's value. Errors: the text is not a value of the column, or does not fit it.
#[inline]
fn held<'a>(column: &Column, text: &'a [u8]) -> Result<Value<'a>, Refusal> {
    let value = given(column, text)?;
    fits(column, &value)?;
    Ok(value)
}

/// Parses the pairs of column and value from index `from` on; `name` is the command's name.
fn pairs<'a>(
    schema: &Schema,
    arguments: impl Arguments<'a>,
    from: usize,
    name: &str,
) -> Result<Pairs<'a>, Refusal> {
    let count = arguments.count();
    let mut found = Pairs { given: Vec::with_capacity(count.saturating_sub(from) / 2), late: None };
    for at in (from..count).step_by(2) {
        if at + 1 == count {
            return Err(Refusal::wrong_count(name));
        }
        let (place, column) = column(schema, arguments.at(at))?;
        let value = given(column, arguments.at(at + 1))?;
        match fits(column, &value) {
            Ok(()) => found.given.push((place, value)),
            Err(error) => found.late = found.late.or_else(|| Some(error.into())),
        }
    }
    Ok(found)
}

/// Parses a command that sets an expiry. `unit`: ms in one unit of the argument; `since_1970`: the
/// argument is a point in time, not a duration.
fn expires<'a>(
    arguments: impl Arguments<'a>,
    name: &'static str,
    unit: i64,
    since_1970: bool,
    now: u64,
) -> Result<Command<'a>, Refusal> {
    let when = condition(arguments, 3)?;
    let given = integer(arguments.at(2)).ok_or_else(Refusal::no_integer)?;
    let micros = given.checked_mul(unit).map(|given| i128::from(given) * 1000);
    // A product that overflows, even a negative one, is refused as too long.
    let micros = micros.unwrap_or(i128::from(i64::MAX) * 1000);
    let life = if since_1970 { Life::Until(micros) } else { Life::For(micros) };
    life.left(name, now)?;
    Ok(Command::Expire { name, life, when })
}

fn condition<'a>(arguments: impl Arguments<'a>, from: usize) -> Result<Condition, Refusal> {
    let mut found = Condition::default();
    for index in from..arguments.count() {
        let word = arguments.at(index);
        match &word.to_ascii_lowercase()[..] {
            b"nx" => found.without = true,
            b"xx" => found.with = true,
            b"gt" => found.greater = true,
            b"lt" => found.less = true,
            _ => return Err(Refusal([b"ERR Unsupported option ", word].concat())),
        }
    }
    if found.without && (found.with || found.greater || found.less) {
        let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(text.into());
    }
    if found.greater && found.less {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(found)
}

fn table_set<'a>(schema: &Schema, arguments: impl Arguments<'a>) -> Result<Command<'a>, Refusal> {
    let word = arguments.at(3);
    let on = [(&b"any"[..], Where::Anywhere), (b"nx", Where::Absent), (b"xx", Where::Present)];
    let on = on.into_iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
    let (_, on) = on.ok_or("ERR syntax error: ANY, NX or XX")?;
    let ttl = match arguments.at(4) {
        text if text.eq_ignore_ascii_case(b"default") => Ttl::Usual,
        text if text.eq_ignore_ascii_case(b"never") => Ttl::Never,
        text => {
            let left = integer(text).and_then(|left| u64::try_from(left).ok());
            let left = left.ok_or("ERR syntax error: DEFAULT, NEVER or milliseconds")?;
            Ttl::For(Duration::from_millis(left))
        }
    };
    let Pairs { given, late } = pairs(schema, arguments, 5, "table|set")?;
    match late {
        Some(late) => Err(late),
        None => Ok(Command::Put { given, on, ttl }),
    }
}

fn compare_and_set<'a>(
    (at, column): (usize, &Column),
    arguments: impl Arguments<'a>,
) -> Result<Command<'a>, Refusal> {
    let [expected, value] = [given(column, arguments.at(4))?, given(column, arguments.at(5))?];
    if !column.kind.is_sized() {
        fits(column, &expected)?;
        fits(column, &value)?;
        return Ok(Command::CompareAndSet { expected, pair: Ok((at, value)) });
    }
    // If the row does not exist, a value that is too long is not an error.
    let pair = fits(column, &value).map(|()| (at, value)).map_err(Refusal::from);
    Ok(Command::CompareAndSet { expected, pair })
}

/// Rows of one table that TABLE MSET replaces.
#[derive(Clone, Debug, PartialEq)]
pub struct Rows<'a> {
    pub keys: Vec<&'a [u8]>,
    given: Vec<Given<'a>>,
    columns: usize,
}

/// Maximum rows in one call: other clients wait meanwhile.
pub const MOST_ROWS: usize = 1_000;

impl<'a> Rows<'a> {
    /// Parses the arguments of TABLE MSET.
    pub fn parse(schema: &Schema, arguments: impl Arguments<'a>) -> Result<Rows<'a>, Refusal> {
        let count = integer(arguments.at(3)).and_then(|count| usize::try_from(count).ok());
        let known = 1..=schema.columns().len();
        let count = count.filter(|count| known.contains(count)).ok_or_else(Refusal::no_integer)?;
        let named = (4..arguments.count()).take(count);
        let columns: Result<Vec<_>, _> =
            named.map(|index| column(schema, arguments.at(index))).collect();
        let columns = columns?;
        let values = arguments.count().saturating_sub(4 + count);
        if columns.len() < count || values == 0 || !values.is_multiple_of(count + 1) {
            return Err(Refusal::wrong_count("table|mset"));
        }
        let rows = values / (count + 1);
        if rows > MOST_ROWS {
            return Err(format!("ERR more than {MOST_ROWS} rows in one call").into());
        }
        let mut found = Rows {
            keys: Vec::with_capacity(rows),
            given: Vec::with_capacity(rows * count),
            columns: count,
        };
        for from in (4 + count..arguments.count()).step_by(count + 1) {
            found.keys.push(arguments.at(from));
            for (number, (place, column)) in columns.iter().enumerate() {
                found.given.push((*place, held(column, arguments.at(from + 1 + number))?));
            }
        }
        Ok(found)
    }

    /// Returns each key with its columns.
    pub fn given(&self) -> impl Iterator<Item = (&'a [u8], &[Given<'a>])> {
        self.keys.iter().copied().zip(self.given.chunks(self.columns))
    }
}
