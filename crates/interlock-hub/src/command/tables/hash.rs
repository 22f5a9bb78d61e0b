//! The commands that Redis has for hashes. A row is one whose columns are all there, as long as it is.

use interlock_rows::{text, Verb};
use interlock_table::{Column, Row, Value};

use super::{answer, one, Named, Refusal};
use crate::command::Call;
use crate::glob;
use crate::resp::parse::integer;
use crate::resp::write::Writer;

pub fn hget(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        match read(&named, named.column(2)?)? {
            Some(text) => reply.bulk(&text),
            None => reply.null(),
        }
        Ok(())
    });
}

pub fn hstrlen(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let text = read(&named, named.column(2)?)?;
        reply.integer(text.map_or(0, |text| text.len()) as i64);
        Ok(())
    });
}

/// The value of a column, as text.
fn read(named: &Named<'_>, column: &Column) -> Result<Option<Vec<u8>>, Refusal> {
    Ok(match named.table().get_column(named.key, column)? {
        Some(Value::Bytes(bytes)) => Some(bytes.into_owned()),
        Some(value) => Some(text::text(&value).into_bytes()),
        None => None,
    })
}

pub fn hmget(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let columns: Result<Vec<_>, _> =
            (2..asked.arguments.len()).map(|index| named.column(index)).collect();
        let (columns, row) = (columns?, named.table().get(named.key)?);
        reply.array(columns.len());
        columns.into_iter().for_each(|column| match &row {
            Some(row) => text::put_from(reply, column, row.words()),
            None => reply.null(),
        });
        Ok(())
    });
}

pub fn hgetall(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let row = named.table().get(named.key)?;
        reply.map(row.as_ref().map_or(0, |row| row.schema().columns().len()));
        row.iter().for_each(|row| pairs(reply, row, |_| true));
        Ok(())
    });
}

/// Names with values, those that are wanted.
fn pairs(reply: &mut Writer<'_>, row: &Row, wanted: impl Fn(&Column) -> bool) {
    for column in row.schema().columns().iter().filter(|column| wanted(column)) {
        reply.bulk(column.name.as_bytes());
        text::put_from(reply, column, row.words());
    }
}

pub fn hkeys(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let there = named.table().contains(named.key)?;
        let columns = if there { named.table().schema().columns() } else { &[] };
        reply.array(columns.len());
        columns.iter().for_each(|column| reply.bulk(column.name.as_bytes()));
        Ok(())
    });
}

pub fn hvals(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let row = named.table().get(named.key)?;
        let columns = row.as_ref().map_or(&[][..], |row| row.schema().columns());
        reply.array(columns.len());
        if let Some(row) = &row {
            columns.iter().for_each(|column| text::put_from(reply, column, row.words()));
        }
        Ok(())
    });
}

pub fn hlen(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let there = named.table().contains(named.key)?;
        reply.integer(if there { named.table().schema().columns().len() as i64 } else { 0 });
        Ok(())
    });
}

pub fn hexists(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let there = named.table().contains(named.key)? && named.column(2).is_ok();
        reply.integer(there.into());
        Ok(())
    });
}

/// In one step: a row has no more columns than fit in an answer.
pub fn hscan(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        // As strtoul of C reads it. A row is given whole, whatever the cursor.
        let cursor = &asked.arguments[2];
        let digits = cursor.strip_prefix(b"-").or(cursor.strip_prefix(b"+")).unwrap_or(cursor);
        let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'));
        if digits.is_none_or(|text| text.parse::<u64>().is_err()) {
            return Err("ERR invalid cursor".into());
        }
        let row = named.table().get(named.key)?;
        if row.is_none() {
            reply.array(2);
            reply.bulk(b"0");
            reply.array(0);
            return Ok(());
        }
        let mut pattern: &[u8] = b"*";
        for index in (3..asked.arguments.len()).step_by(2) {
            let (word, value) = (&asked.arguments[index], asked.arguments.get(index + 1));
            let value = value.ok_or("ERR syntax error")?;
            if word.eq_ignore_ascii_case(b"match") {
                pattern = value;
            } else if !word.eq_ignore_ascii_case(b"count") {
                return Err("ERR syntax error".into());
            } else if integer(value).is_none() {
                return Err("ERR value is not an integer or out of range".into());
            } else if integer(value).is_some_and(|count| count < 1) {
                return Err("ERR syntax error".into());
            }
        }
        if let Some(text) = glob::refusal(pattern) {
            return Err(text.into());
        }
        let wanted = |column: &Column| glob::matches(pattern, column.name.as_bytes());
        let columns = row.as_ref().map_or(&[][..], |row| row.schema().columns());
        reply.array(2);
        reply.bulk(b"0");
        reply.array(columns.iter().filter(|column| wanted(column)).count() * 2);
        row.iter().for_each(|row| pairs(reply, row, wanted));
        Ok(())
    });
}

pub fn hset(call: &mut Call<'_, '_>) {
    one(call, Verb::Hset);
}

pub fn hmset(call: &mut Call<'_, '_>) {
    one(call, Verb::Hmset);
}

pub fn hsetnx(call: &mut Call<'_, '_>) {
    one(call, Verb::Hsetnx);
}

pub fn hdel(call: &mut Call<'_, '_>) {
    one(call, Verb::Hdel);
}

pub fn hincrby(call: &mut Call<'_, '_>) {
    one(call, Verb::Hincrby);
}

pub fn hincrbyfloat(call: &mut Call<'_, '_>) {
    one(call, Verb::Hincrbyfloat);
}
