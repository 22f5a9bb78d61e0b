//! TABLE: what a typed row can beyond a hash, and what a table is.

use std::time::Duration;

use interlock_table::{Column, Overflow, Row, Ttl, Value, Where, Written};

use super::scan::{cursor, Options, MOST_ROWS, MOST_SLOTS};
use super::{answer, column, values, Refusal};
use crate::command::Call;
use crate::resp::parse::integer;
use crate::resp::write::Writer;

pub fn list(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let seen = asked.tables.all().iter().filter(|table| asked.may_see(table));
        let mut names: Vec<&str> = seen.map(|table| table.name.as_str()).collect();
        names.sort_unstable();
        reply.array(names.len());
        names.iter().for_each(|name| reply.bulk(name.as_bytes()));
        Ok(())
    });
}

pub fn info(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let table = asked.served(&asked.arguments[2])?.table();
        let made = table.made();
        let numbers = [
            ("capacity", made.capacity),
            ("key_size", made.key_size.into()),
            ("ttl", made.ttl / 1_000_000),
            ("slots", table.slots()),
            ("bytes", table.bytes()),
            ("removed", (!table.has_name()).into()),
        ];
        reply.map(2 + numbers.len());
        for (name, text) in [
            ("columns", table.schema().to_string()),
            ("on_full", if made.evict { "evict" } else { "raise" }.to_owned()),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(text.as_bytes());
        }
        for (name, number) in numbers {
            reply.bulk(name.as_bytes());
            reply.integer(number as i64);
        }
        Ok(())
    });
}

pub fn count(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let table = asked.table(2)?.table();
        let (rows, next) = table.count_within(cursor(&asked.arguments[3])?, MOST_SLOTS * 8);
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
        reply.integer(rows as i64);
        Ok(())
    });
}

pub fn scan(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let table = asked.table(2)?.table();
        let options = Options::of(asked, 4, false)?;
        let each = table.schema().bytes() + table.made().key_size as usize;
        let limit = options.count.min((MOST_ANSWERED / each).max(1));
        let mut found = Vec::new();
        let from = cursor(&asked.arguments[3])?;
        let next = table.scan_within(from, limit, MOST_SLOTS, |row| found.push(row));
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
        reply.array(found.len() * 2);
        for row in &found {
            reply.bulk(&row.key);
            put(reply, &row.row);
        }
        Ok(())
    });
}

pub fn mget(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let table = asked.table(2)?.table();
        let keys: Vec<&[u8]> = asked.arguments.from(3).collect();
        within(keys.len())?;
        let rows = table.get_many(&keys)?;
        reply.array(rows.len());
        rows.iter().for_each(|row| match row {
            Some(row) => put(reply, row),
            None => reply.null(),
        });
        Ok(())
    });
}

pub fn idle(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(2)?;
        match named.table().idle(named.key)? {
            Some(idle) => reply.integer(idle.as_millis() as i64),
            None => reply.null(),
        }
        Ok(())
    });
}

pub fn set(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(2)?;
        let on = match &asked.arguments[3].to_ascii_lowercase()[..] {
            b"any" => Where::Anywhere,
            b"nx" => Where::Absent,
            b"xx" => Where::Present,
            _ => return Err("ERR syntax error: ANY, NX or XX".into()),
        };
        let ttl = match &asked.arguments[4].to_ascii_lowercase()[..] {
            b"default" => Ttl::Usual,
            b"never" => Ttl::Never,
            text => {
                let left = integer(text).and_then(|left| u64::try_from(left).ok());
                let left = left.ok_or("ERR syntax error: DEFAULT, NEVER or milliseconds")?;
                Ttl::For(Duration::from_millis(left))
            }
        };
        let pairs = asked.pairs(named.table(), 5)?;
        let mut row = Row::new(named.table().schema());
        for (column, value) in &pairs {
            column.write(row.words_mut(), value)?;
        }
        let written = named.call(|table| table.write(named.key, row.words(), ttl, on))?;
        match written {
            Written::Inserted => reply.integer(1),
            Written::Replaced => reply.integer(0),
            Written::Not => reply.null(),
        }
        Ok(())
    });
}

pub fn mset(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let served = asked.table(2)?;
        let table = served.table();
        let count = integer(&asked.arguments[3]).and_then(|count| usize::try_from(count).ok());
        let known = 1..=table.schema().columns().len();
        let count = count.filter(|count| known.contains(count));
        let count = count.ok_or("ERR value is not an integer or out of range")?;
        let names = asked.arguments.from(4).take(count);
        let columns: Result<Vec<&Column>, _> = names.map(|name| column(table, name)).collect();
        let columns = columns?;
        let values: Vec<&[u8]> = asked.arguments.from(4 + count).collect();
        if columns.len() < count || values.is_empty() || !values.len().is_multiple_of(count + 1) {
            return Err(asked.wrong_count());
        }
        within(values.len() / (count + 1))?;
        let mut rows = Vec::with_capacity(values.len() / (count + 1));
        for row in values.chunks(count + 1) {
            let mut words = Row::new(table.schema());
            for (column, text) in columns.iter().zip(&row[1..]) {
                column.write(words.words_mut(), &values::given(column, text)?)?;
            }
            rows.push((row[0], words));
        }
        for (key, row) in &rows {
            asked
                .call(served, |table| table.write(key, row.words(), Ttl::Usual, Where::Anywhere))?;
        }
        reply.integer(rows.len() as i64);
        Ok(())
    });
}

pub fn patch(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(2)?;
        let pairs = asked.pairs(named.table(), 3)?;
        let pairs: Vec<_> = pairs.iter().map(|(column, value)| (*column, value)).collect();
        let there = named.call(|table| table.patch(named.key, &pairs))?;
        reply.integer(there.into());
        Ok(())
    });
}

pub fn incr(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(2)?;
        let column = named.column(3)?;
        let by = values::increment(column, &asked.arguments[4])?;
        let overflow = match asked.arguments.get(5) {
            None => Overflow::Refuse,
            Some(word) if word.eq_ignore_ascii_case(b"wrap") => Overflow::Wrap,
            Some(word) if word.eq_ignore_ascii_case(b"saturate") => Overflow::Saturate,
            Some(_) => return Err("ERR syntax error: WRAP or SATURATE".into()),
        };
        if asked.arguments.len() > 6 {
            return Err(asked.wrong_count());
        }
        let sum = named.call(|table| table.incr(named.key, column, by, overflow))?;
        match sum {
            Some(sum) => values::sum(reply, &sum),
            None => reply.null(),
        }
        Ok(())
    });
}

pub fn compare_and_set(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(2)?;
        let column = named.column(3)?;
        let [expected, value]: [Value<'_>; 2] = [
            values::given(column, &asked.arguments[4])?,
            values::given(column, &asked.arguments[5])?,
        ];
        let done =
            named.call(|table| table.compare_and_set(named.key, column, &expected, &value))?;
        match done {
            Some(done) => reply.integer(done.into()),
            None => reply.null(),
        }
        Ok(())
    });
}

pub fn pop(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let named = asked.row(2)?;
        match named.call(|table| table.pop(named.key))? {
            Some(row) => put(reply, &row),
            None => reply.null(),
        }
        Ok(())
    });
}

/// The values of all columns, in their order.
fn put(reply: &mut Writer<'_>, row: &Row) {
    let columns = row.schema().columns();
    reply.array(columns.len());
    columns.iter().for_each(|column| values::put(reply, column, row.words()));
}

/// Errors: more rows than one call may name, for others wait meanwhile.
fn within(rows: usize) -> Result<(), Refusal> {
    match rows <= MOST_ROWS {
        true => Ok(()),
        false => Err(format!("ERR more than {MOST_ROWS} rows in one call").into()),
    }
}

/// Bytes of rows in one answer, about.
const MOST_ANSWERED: usize = 1 << 20;
