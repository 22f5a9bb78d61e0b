//! The change that a command makes to a row, and its reply.

use interlock_table::{By, Change, Column, Given, Overflow, Schema, Ttl, Value, Where};

use crate::command::Command;
use crate::refusal::Refusal;
use crate::text;
use crate::view::View;
use crate::write::Writer;

/// The reply to a command on one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Ok,
    /// The row does not exist, or the condition does not hold.
    Null,
    Integer(i64),
    /// A sum: an integer of the protocol if it fits into one, otherwise text.
    Sum(Value<'static>),
    /// A value as text.
    Text(Value<'static>),
    /// The values of all columns in order.
    Row(Vec<Value<'static>>),
}

/// The change, if any, and the reply.
pub type Decided<'c> = Result<(Option<Change<'c>>, Reply), Refusal>;

/// Decides the change and the reply; both depend only on the arguments. `now`: µs since 1970.
pub fn decide<'c>(
    command: &'c Command<'_>,
    schema: &Schema,
    view: &impl View,
    now: u64,
) -> Decided<'c> {
    let (mut change, mut reply) = (None, Reply::Null);
    decide_to(command, schema, view, now, &mut change, &mut reply)?;
    Ok((change, reply))
}

/// Like `decide`, but writes to `change` and `reply`, which must be `None` and `Null` before.
pub fn decide_to<'c>(
    command: &'c Command<'_>,
    schema: &Schema,
    view: &impl View,
    now: u64,
    change: &mut Option<Change<'c>>,
    reply: &mut Reply,
) -> Result<(), Refusal> {
    let there = view.is_there();
    match command {
        Command::Set { pairs, ok } => {
            pairs.check()?;
            let given = &pairs.given[..];
            let made = if there { 0 } else { distinct(given) };
            *reply = if *ok { Reply::Ok } else { Reply::Integer(made) };
            *change = Some(match there {
                true => Change::Patch { given },
                false => Change::Create { given, expires_at: view.expiry(Ttl::Usual) },
            });
        }
        Command::SetNew { pair } => {
            *reply = integer(!there);
            if !there {
                let given = std::slice::from_ref(pair);
                *change = Some(Change::Create { given, expires_at: view.expiry(Ttl::Usual) });
            }
        }
        Command::DeleteColumn { column } => match column {
            Some(column) if there => {
                return Err(format!(
                    "ERR column {} cannot be deleted: a row has all its columns; HSET sets one, \
                     DEL deletes the row",
                    schema.columns()[*column].name
                )
                .into())
            }
            _ => *reply = Reply::Integer(0),
        },
        Command::Raise { column, by, float } => {
            let shown = |value| if *float { Reply::Text(value) } else { Reply::Sum(value) };
            if there {
                let to = sum(*column, *by, Overflow::Refuse, schema, view)?;
                *reply = shown(view.raised(*column, to.clone()));
                *change = Some(Change::Raise { column: *column, to });
            } else {
                let value = of_nothing(&schema.columns()[*column], *by)?;
                let expires_at = view.expiry(Ttl::Usual);
                *reply = shown(value.clone());
                *change = Some(Change::CreateBy { column: *column, value, expires_at });
            }
        }
        Command::Delete => {
            *reply = integer(there);
            if there {
                *change = Some(Change::Delete);
            }
        }
        Command::Persist => {
            let done = there && view.left().is_some();
            *reply = integer(done);
            if done {
                *change = Some(Change::Expire { at: 0 });
            }
        }
        Command::Expire { name, life, when } => {
            let left = life.left(name, now)?;
            let done = there && when.allows(view.left(), left);
            *reply = integer(done);
            if done {
                *change = Some(Change::Expire { at: view.expiry(Ttl::For(left)) });
            }
        }
        Command::Put { given, on, ttl } => match on {
            Where::Present if !there => {}
            Where::Absent if there => {}
            _ => {
                *reply = integer(!there);
                *change = Some(put(given, *ttl, view));
            }
        },
        Command::Patch { pairs } => {
            *reply = integer(there);
            if there {
                pairs.check()?;
                *change = Some(Change::Patch { given: &pairs.given });
            }
        }
        Command::Increase { column, by, overflow } => {
            if there {
                let to = sum(*column, *by, *overflow, schema, view)?;
                *reply = Reply::Sum(view.raised(*column, to.clone()));
                *change = Some(Change::Raise { column: *column, to });
            }
        }
        Command::CompareAndSet { expected, pair } => {
            if there {
                let pair = pair.as_ref().map_err(Refusal::clone)?;
                let same = view.is(pair.0, expected);
                *reply = integer(same);
                if same {
                    *change = Some(Change::Patch { given: std::slice::from_ref(pair) });
                }
            }
        }
        Command::Pop => {
            if there {
                let columns = 0..schema.columns().len();
                let values = columns.map(|column| text::owned(view.value(column))).collect();
                *reply = Reply::Row(values);
                *change = Some(Change::Delete);
            }
        }
    }
    Ok(())
}

/// Returns the number of distinct columns.
fn distinct(given: &[Given<'_>]) -> i64 {
    let mut columns: Vec<usize> = given.iter().map(|(column, _)| *column).collect();
    columns.sort_unstable();
    columns.dedup();
    columns.len() as i64
}

/// Returns the change that sets a whole row, whether it exists or not.
pub fn put<'c>(given: &'c [Given<'_>], ttl: Ttl, view: &impl View) -> Change<'c> {
    let expires_at = view.expiry(ttl);
    match view.is_there() {
        true => Change::Replace { given, expires_at },
        false => Change::Create { given, expires_at },
    }
}

/// Returns the raised value of a column of an existing row.
#[inline]
fn sum(
    column: usize,
    by: By,
    overflow: Overflow,
    schema: &Schema,
    view: &impl View,
) -> Result<Value<'static>, Refusal> {
    Ok(schema.columns()[column].raised(&view.value(column), by, overflow)?)
}

/// Returns the value of a column that is raised in a row that does not exist yet. A value beyond
/// the column's range is refused as an overflowing sum, not as a wrong argument.
fn of_nothing(column: &Column, by: By) -> Result<Value<'static>, Refusal> {
    let value = match by {
        By::Integer(by) => i64::try_from(by).map(Value::Signed).map_err(|_| Refusal::beyond())?,
        By::Float(by) => Value::Float(by),
    };
    let bits = column.encode(&value).map_err(|_| Refusal::beyond())?;
    Ok(column.decode(column.insert(0, bits)))
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
