//! TABLE: what a typed row can beyond a hash, and what a table is.

use interlock_rows::decide::put as put_row;
use interlock_rows::parse::Rows;
use interlock_rows::read::row as read_row;
use interlock_rows::Verb;
use interlock_table::Ttl;

use super::scan::{cursor, Options, MOST_ROWS, MOST_SLOTS};
use super::view::Copied;
use super::{answer, one, Named, Refusal};
use crate::command::Call;

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
        let schema = table.schema();
        let options = Options::of(asked, 4, false)?;
        let each = schema.bytes() + table.made().key_size as usize;
        let limit = options.count.min((MOST_ANSWERED / each).max(1));
        let mut found = Vec::new();
        let from = cursor(&asked.arguments[3])?;
        let next = table.scan_within(from, limit, MOST_SLOTS, |row| found.push(row));
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
        reply.array(found.len() * 2);
        for row in &found {
            reply.bulk(&row.key);
            read_row(schema, &Copied { schema, words: Some(row.row.words()) }, reply);
        }
        Ok(())
    });
}

pub fn mget(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let table = asked.table(2)?.table();
        let keys: Vec<&[u8]> = asked.arguments.from(3).collect();
        within(keys.len())?;
        let schema = table.schema();
        let mut room = vec![0; schema.words()];
        reply.array(keys.len());
        table.read_many(&keys, 0..schema.words(), &mut room, |words| {
            read_row(schema, &Copied { schema, words }, reply);
        })?;
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
    one(call, Verb::TableSet);
}

pub fn mset(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        let served = asked.table(2)?;
        let rows = Rows::parse(served.table().schema(), asked.arguments)?;
        for (key, given) in rows.given() {
            let named = Named { asked, served, key };
            named.step(|view, change| {
                *change = Some(put_row(given, Ttl::Usual, view));
                Ok(())
            })?;
        }
        reply.integer(rows.keys.len() as i64);
        Ok(())
    });
}

pub fn patch(call: &mut Call<'_, '_>) {
    one(call, Verb::TablePatch);
}

pub fn incr(call: &mut Call<'_, '_>) {
    one(call, Verb::TableIncr);
}

pub fn compare_and_set(call: &mut Call<'_, '_>) {
    one(call, Verb::TableCas);
}

pub fn pop(call: &mut Call<'_, '_>) {
    one(call, Verb::TablePop);
}

/// Answers at once for a table that the hub writes; else its writer answers.
pub fn barrier(call: &mut Call<'_, '_>) {
    answer(call, |asked, reply| {
        asked.table(2)?;
        if asked.arguments.len() > 3 {
            return Err("ERR ACKS is for tables on a log: this table is only on this hub".into());
        }
        reply.simple("OK");
        Ok(())
    });
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
