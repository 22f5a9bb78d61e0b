//! Commands on the rows of state tables: `table:key` names one.

pub mod hash;
pub mod keys;
pub mod node_calls;
pub mod rows;
mod scan;
mod view;

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use interlock_rows::{decide_to, parse, Change, Command, Query, Read, Reply, Verb};
use interlock_table::{Error, Seen, Table};

use self::view::Shown;
use super::Call;
use crate::access::users::{named_row, User};
use crate::resp::parse::Arguments;
use crate::resp::write::Writer;
use crate::system::time::Time;
use crate::tables::keeper::STALE;
use crate::tables::served::{ServedTable, Tables};

pub use interlock_rows::Refusal;
pub use scan::{dbsize, scan};

type Done = Result<(), Refusal>;

/// A call, as far as tables are concerned.
struct Asked<'a> {
    arguments: Arguments<'a>,
    tables: &'a Tables,
    user: Option<&'a Arc<User>>,
    /// The time until which this worker does not wait for writers.
    barred: Cell<Time>,
    clock: fn() -> Time,
}

/// A row that a call names, whether there is one or not.
struct Named<'a> {
    asked: &'a Asked<'a>,
    served: &'a Arc<ServedTable>,
    key: &'a [u8],
}

/// Answers a call; a refusal replaces everything already written of a reply.
fn answer(call: &mut Call<'_, '_>, body: impl FnOnce(&Asked<'_>, &mut Writer<'_>) -> Done) {
    if call.core.local.live.tables.are_given() && node_calls::is_given(call) {
        return;
    }
    let before = call.reply.out.len();
    let local = &*call.core.local;
    let asked = Asked {
        arguments: call.arguments,
        tables: &local.live.tables,
        user: call.state.user.as_ref(),
        barred: Cell::new(local.barred),
        clock: call.core.clock,
    };
    let done = body(&asked, &mut call.reply);
    let barred = asked.barred.get();
    call.core.local.barred = barred;
    if let Err(Refusal(text)) = done {
        call.reply.out.truncate(before);
        call.error_bytes(&text);
    }
}

impl<'a> Asked<'a> {
    /// The row that an argument names.
    fn row(&'a self, index: usize) -> Result<Named<'a>, Refusal> {
        self.row_of(self.arguments.get(index).unwrap_or_default())
    }

    fn row_of(&'a self, text: &'a [u8]) -> Result<Named<'a>, Refusal> {
        let Some((name, key)) = named_row(text) else {
            return Err("ERR a row is named by TABLE:KEY".into());
        };
        Ok(Named { asked: self, served: self.named(name)?, key })
    }

    /// The table that an argument names.
    fn table(&'a self, index: usize) -> Result<&'a Arc<ServedTable>, Refusal> {
        self.named(self.arguments.get(index).unwrap_or_default())
    }

    fn named(&'a self, name: &[u8]) -> Result<&'a Arc<ServedTable>, Refusal> {
        let served = self.served(name)?;
        self.fresh(served)?;
        Ok(served)
    }

    /// Errors: the table is kept, and what is known of it is too old.
    fn fresh(&self, served: &ServedTable) -> Done {
        match &served.keeper {
            Some(keeper) if !keeper.is_fresh(self.clock) => Err(STALE.into()),
            _ => Ok(()),
        }
    }

    /// The table by its name, for what asks nothing of its rows.
    fn served(&'a self, name: &[u8]) -> Result<&'a Arc<ServedTable>, Refusal> {
        match self.tables.named(name) {
            Some(served) => {
                served.calls.fetch_add(1, Relaxed);
                Ok(served)
            }
            None => Err(Refusal([b"NOTABLE this hub has no table '", name, b"'"].concat())),
        }
    }

    fn call<R>(
        &self,
        served: &ServedTable,
        call: impl FnMut(&Table) -> Result<R, Error>,
    ) -> Result<R, Refusal> {
        let mut barred = self.barred.get();
        let found = served.call(&mut barred, self.clock, call);
        self.barred.set(barred);
        Ok(found?)
    }
}

impl<'a> Named<'a> {
    /// The table, for calls that never wait.
    fn table(&self) -> &'a Table {
        self.served.table()
    }

    fn call<R>(&self, call: impl FnMut(&Table) -> Result<R, Error>) -> Result<R, Refusal> {
        self.asked.call(self.served, call)
    }

    /// The command of this name on the row, in one step of the table.
    fn run(&self, verb: Verb, wall: u64, reply: &mut Reply) -> Done {
        match &parse(verb, self.table().schema(), self.asked.arguments, wall) {
            Ok(command) => self.decide(command, wall, reply),
            Err(refusal) => Err(refusal.clone()),
        }
    }

    fn decide(&self, command: &Command<'_>, wall: u64, reply: &mut Reply) -> Done {
        if !command.is_of_row() {
            *reply = Reply::Integer(0);
            return Ok(());
        }
        self.step(|view, change| {
            *reply = Reply::Null;
            decide_to(command, view.table.schema(), view, wall, change, reply)
        })
    }

    /// Has a row decide what changes of it, and makes the change.
    fn step<'c>(
        &self,
        mut decide: impl FnMut(&Shown<'_>, &mut Option<Change<'c>>) -> Done,
    ) -> Done {
        let mut done = Ok(());
        self.call(|table| {
            table.decide(self.key, |row, change| done = decide(&Shown { table, row }, change))
        })?;
        done
    }
}

/// Does one command on the row that an argument names.
fn one(call: &mut Call<'_, '_>, verb: Verb) {
    // The time of day is read for what needs it alone.
    let wall = if verb.is_of_time() { call.core.shared.queues.wall() } else { 0 };
    answer(call, |asked, reply| {
        let mut told = Reply::Null;
        asked.row(verb.row_at())?.run(verb, wall, &mut told)?;
        told.write(reply);
        Ok(())
    });
}

/// Answers one command that reads the row that its first argument names.
fn read(call: &mut Call<'_, '_>, read: Read) {
    let wall = if read.is_of_time() { call.core.shared.queues.wall() } else { 0 };
    answer(call, |asked, reply| {
        let named = asked.row(1)?;
        let table = named.table();
        let query = Query::parse(read, table.schema(), asked.arguments)?;
        let (from, mut done) = (reply.out.len(), Ok(()));
        let look = |row: &Seen<'_>| {
            reply.out.truncate(from);
            done = query.answer(table.schema(), &Shown { table, row }, wall, reply);
        };
        match query.is_access() {
            true => table.look(named.key, look)?,
            false => table.glance(named.key, look)?,
        }
        done
    });
}

impl<'a> interlock_rows::Arguments<'a> for Arguments<'a> {
    fn count(self) -> usize {
        self.len()
    }

    fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }
}
