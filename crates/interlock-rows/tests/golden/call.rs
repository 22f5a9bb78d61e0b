//! Commands on a whole table: its name, its keys, and commands on several rows.

use std::collections::HashSet;

use interlock_table::{Change, Error, Schema, Ttl};

use interlock_rows::decide::{decide, put, Reply};
use interlock_rows::parse::{parse, Arguments, Rows, Verb};
use interlock_rows::{Command, Refusal, View};

/// A table with its name.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: Vec<u8>,
    pub schema: Schema,
    /// Maximum bytes of a key.
    pub key_size: usize,
}

/// The rows of a table; nothing else changes them during the call.
pub trait Store {
    type Row<'s>: View
    where
        Self: 's;

    fn row(&self, key: &[u8]) -> Self::Row<'_>;

    /// Refuses this many new rows if the table lacks room for them.
    fn room(&self, rows: usize) -> Result<(), Refusal>;

    /// Applies a change.
    fn change(&mut self, key: &[u8], change: &Change<'_>);
}

impl Named {
    /// Executes a command that changes rows; `now`: µs since 1970. A command that ends in an error
    /// changes nothing.
    pub fn call<'a>(
        &self,
        arguments: impl Arguments<'a>,
        store: &mut impl Store,
        now: u64,
    ) -> Result<Reply, Refusal> {
        let verb = Verb::of(arguments)?.ok_or_else(|| unknown(arguments))?;
        match verb {
            Verb::TableMset => return self.mset(arguments, store),
            Verb::Del => return self.delete(arguments, store, now),
            _ => {}
        }
        let key = self.key(arguments.at(verb.row_at()))?;
        let command = parse(verb, &self.schema, arguments, now)?;
        if command.is_of_row() {
            self.check(key)?;
        }
        let (change, reply) = decide(&command, &self.schema, &store.row(key), now)?;
        if let Some(change) = &change {
            if let Change::Create { .. } | Change::CreateBy { .. } = change {
                store.room(1)?;
            }
            store.change(key, change);
        }
        Ok(reply)
    }

    fn delete<'a>(
        &self,
        arguments: impl Arguments<'a>,
        store: &mut impl Store,
        now: u64,
    ) -> Result<Reply, Refusal> {
        let keys: Result<Vec<_>, _> =
            (1..arguments.count()).map(|index| self.key(arguments.at(index))).collect();
        let keys = keys?;
        keys.iter().try_for_each(|key| self.check(key))?;
        let mut count = 0;
        for key in keys {
            let (change, _) = decide(&Command::Delete, &self.schema, &store.row(key), now)?;
            if let Some(change) = &change {
                store.change(key, change);
                count += 1;
            }
        }
        Ok(Reply::Integer(count))
    }

    fn mset<'a>(
        &self,
        arguments: impl Arguments<'a>,
        store: &mut impl Store,
    ) -> Result<Reply, Refusal> {
        if arguments.at(2) != self.name {
            return Err(no_table(arguments.at(2)));
        }
        let rows = Rows::parse(&self.schema, arguments)?;
        rows.keys.iter().try_for_each(|key| self.check(key))?;
        let new: HashSet<_> = rows.keys.iter().filter(|key| !store.row(key).is_there()).collect();
        if !new.is_empty() {
            store.room(new.len())?;
        }
        for (key, given) in rows.given() {
            let change = put(given, Ttl::Usual, &store.row(key));
            store.change(key, &change);
        }
        Ok(Reply::Integer(rows.keys.len() as i64))
    }

    /// Returns the key that an argument names, without checking its length.
    fn key<'a>(&self, text: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let at = text.iter().position(|byte| *byte == b':');
        let (name, key) = match at.filter(|at| *at <= LONGEST_TABLE) {
            Some(at) => (&text[..at], &text[at + 1..]),
            None => return Err("ERR a row is named by TABLE:KEY".into()),
        };
        if name != self.name {
            return Err(no_table(name));
        }
        Ok(key)
    }

    /// Refuses a key that is empty or too long.
    fn check(&self, key: &[u8]) -> Result<(), Refusal> {
        let (length, limit) = (key.len(), self.key_size);
        match (1..=limit).contains(&length) {
            true => Ok(()),
            false => Err(Error::KeyLength { length, limit }.into()),
        }
    }
}

fn unknown<'a>(arguments: impl Arguments<'a>) -> Refusal {
    let mut name = arguments.at(0).to_ascii_lowercase();
    if name == b"table" && arguments.count() > 1 {
        name = [b"table|", &arguments.at(1).to_ascii_lowercase()[..]].concat();
    }
    Refusal([b"ERR unknown command '", &name[..name.len().min(128)], b"'"].concat())
}

fn no_table(name: &[u8]) -> Refusal {
    Refusal([b"NOTABLE this hub has no table '", name, b"'"].concat())
}

/// Maximum bytes of a table's name.
const LONGEST_TABLE: usize = 200;
