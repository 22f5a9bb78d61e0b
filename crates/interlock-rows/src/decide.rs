//! The change that a command makes of a row, and its reply.

use interlock_table::{By, Change, Column, Given, Overflow, Schema, Ttl, Value, Where};

use crate::command::{Command, Pairs};
use crate::refusal::Refusal;
use crate::text;
use crate::view::View;
use crate::write::Writer;

/// The reply to a command on one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Ok,
    /// There is no row, or it is not as it should be.
    Null,
    Integer(i64),
    /// A sum: an integer of the protocol, as far as that goes.
    Sum(Value<'static>),
    /// A value as text.
    Text(Value<'static>),
    /// The values of all columns, in their order.
    Row(Vec<Value<'static>>),
}

/// A change, if there is one, and the reply.
pub type Decided<'c> = Result<(Option<Change<'c>>, Reply), Refusal>;

/// Decides a command by what a row is. It depends on nothing else; `now`: µs since 1970.
pub fn decide<'c>(
    command: &'c Command<'_>,
    schema: &Schema,
    view: &impl View,
    now: u64,
) -> Decided<'c> {
    let unless = |done: bool, change| Ok((Some(change).filter(|_| done), integer(done)));
    match command {
        Command::Set { pairs, ok } => set(pairs, *ok, view),
        Command::SetNew { pair } => {
            let given = std::slice::from_ref(pair);
            let create = || Change::Create { given, expires_at: view.expiry(Ttl::Usual) };
            let absent = !view.is_there();
            Ok((absent.then(create), integer(absent)))
        }
        Command::DeleteColumn { column } => match column {
            Some(column) if view.is_there() => Err(format!(
                "ERR column {} cannot be deleted: a row has all its columns; HSET sets one, DEL \
                 deletes the row",
                schema.columns()[*column].name
            )
            .into()),
            _ => Ok((None, Reply::Integer(0))),
        },
        Command::Raise { column, by, float } => {
            let shown = |value| if *float { Reply::Text(value) } else { Reply::Sum(value) };
            if view.is_there() {
                let (change, sum) = raise(*column, *by, Overflow::Refuse, schema, view)?;
                return Ok((Some(change), shown(sum)));
            }
            let value = of_nothing(&schema.columns()[*column], *by)?;
            let expires_at = view.expiry(Ttl::Usual);
            let change = Change::CreateBy { column: *column, value: value.clone(), expires_at };
            Ok((Some(change), shown(value)))
        }
        Command::Delete => unless(view.is_there(), Change::Delete),
        Command::Persist => {
            unless(view.is_there() && view.left().is_some(), Change::Expire { at: 0 })
        }
        Command::Expire { name, life, when } => {
            let left = life.left(name, now)?;
            let done = view.is_there() && when.allows(view.left(), left);
            unless(done, Change::Expire { at: view.expiry(Ttl::For(left)) })
        }
        Command::Put { given, on, ttl } => {
            let there = view.is_there();
            match on {
                Where::Present if !there => Ok((None, Reply::Null)),
                Where::Absent if there => Ok((None, Reply::Null)),
                _ => Ok((Some(put(given, *ttl, view)), integer(!there))),
            }
        }
        Command::Patch { pairs } => {
            if !view.is_there() {
                return Ok((None, Reply::Integer(0)));
            }
            pairs.check()?;
            Ok((Some(Change::Patch { given: &pairs.given }), Reply::Integer(1)))
        }
        Command::Increase { column, by, overflow } => {
            if !view.is_there() {
                return Ok((None, Reply::Null));
            }
            let (change, sum) = raise(*column, *by, *overflow, schema, view)?;
            Ok((Some(change), Reply::Sum(sum)))
        }
        Command::CompareAndSet { expected, pairs } => {
            if !view.is_there() {
                return Ok((None, Reply::Null));
            }
            pairs.check()?;
            let same = pairs.given.iter().all(|(at, _)| text::same(&view.value(*at), expected));
            unless(same, Change::Patch { given: &pairs.given })
        }
        Command::Pop => {
            if !view.is_there() {
                return Ok((None, Reply::Null));
            }
            let columns = 0..schema.columns().len();
            let values = columns.map(|column| text::owned(view.value(column))).collect();
            Ok((Some(Change::Delete), Reply::Row(values)))
        }
    }
}

/// Sets columns, and makes the row if there is none. The reply is how many were not there before: all, or
/// none.
fn set<'c>(pairs: &'c Pairs<'_>, ok: bool, view: &impl View) -> Decided<'c> {
    pairs.check()?;
    let given = &pairs.given[..];
    let reply = |count| if ok { Reply::Ok } else { Reply::Integer(count) };
    if view.is_there() {
        return Ok((Some(Change::Patch { given }), reply(0)));
    }
    let mut columns: Vec<usize> = given.iter().map(|(column, _)| *column).collect();
    columns.sort_unstable();
    columns.dedup();
    let change = Change::Create { given, expires_at: view.expiry(Ttl::Usual) };
    Ok((Some(change), reply(columns.len() as i64)))
}

/// Sets a row as a whole, be there one or not.
pub fn put<'c>(given: &'c [Given<'_>], ttl: Ttl, view: &impl View) -> Change<'c> {
    let expires_at = view.expiry(ttl);
    match view.is_there() {
        true => Change::Replace { given, expires_at },
        false => Change::Create { given, expires_at },
    }
}

/// Raises a column of a row that is there. Also returns what it shows then.
fn raise<'c>(
    column: usize,
    by: By,
    overflow: Overflow,
    schema: &Schema,
    view: &impl View,
) -> Result<(Change<'c>, Value<'static>), Refusal> {
    let sum = schema.columns()[column].raised(&view.value(column), by, overflow)?;
    let shown = view.raised(column, sum.clone());
    Ok((Change::Raise { column, to: sum }, shown))
}

/// The value of a column that is raised from nothing. What is beyond its range is a sum that is, and not a
/// wrong argument.
fn of_nothing(column: &Column, by: By) -> Result<Value<'static>, Refusal> {
    let value = match by {
        By::Integer(by) => i64::try_from(by).map(Value::Signed).map_err(|_| Refusal::beyond())?,
        By::Float(by) => Value::Float(by),
    };
    text::held(column, value).map_err(|_| Refusal::beyond())
}

fn integer(truth: bool) -> Reply {
    Reply::Integer(truth.into())
}

impl Reply {
    pub fn write(&self, to: &mut Writer<'_>) {
        match self {
            Reply::Ok => to.ok(),
            Reply::Null => to.null(),
            Reply::Integer(number) => to.integer(*number),
            Reply::Sum(Value::Signed(number)) => to.integer(*number),
            Reply::Sum(Value::Unsigned(number)) if *number <= i64::MAX as u64 => {
                to.integer(*number as i64);
            }
            Reply::Sum(value) | Reply::Text(value) => text::put(to, value),
            Reply::Row(values) => {
                to.array(values.len());
                values.iter().for_each(|value| text::put(to, value));
            }
        }
    }
}
