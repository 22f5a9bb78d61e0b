//! Commands on the rows of state tables: `table:key` names one.

pub mod hash;
pub mod kept;
pub mod keys;
pub mod rows;
mod scan;

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use interlock_rows::{decide, parse, Change, Command, Reply, Verb, View};
use interlock_table::{Column, Error, Seen, Table, Ttl, Value};

use super::Call;
use crate::kept::STALE;
use crate::resp::parse::Arguments;
use crate::resp::write::Writer;
use crate::tables::{ServedTable, Tables};
use crate::time::Time;
use crate::users::{named_row, User};

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

/// Answers a call; a refusal stands for all that was written of a reply.
fn answer(call: &mut Call<'_, '_>, body: impl FnOnce(&Asked<'_>, &mut Writer<'_>) -> Done) {
    if call.core.local.live.tables.are_given() && kept::is_given(call) {
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
        call: impl Fn(&Table) -> Result<R, Error>,
    ) -> Result<R, Refusal> {
        let mut barred = self.barred.get();
        let found = served.call(&mut barred, self.clock, call);
        self.barred.set(barred);
        Ok(found?)
    }
}

impl<'a> Named<'a> {
    /// For what waits for nobody.
    fn table(&self) -> &'a Table {
        self.served.table()
    }

    fn column(&self, index: usize) -> Result<&'a Column, Refusal> {
        column(self.table(), self.asked.arguments.get(index).unwrap_or_default())
    }

    fn call<R>(&self, call: impl Fn(&Table) -> Result<R, Error>) -> Result<R, Refusal> {
        self.asked.call(self.served, call)
    }

    /// The command of this name on the row, in one step of the table.
    fn run(&self, verb: Verb, wall: u64) -> Result<Reply, Refusal> {
        let command = parse(verb, self.table().schema(), self.asked.arguments, wall)?;
        self.decide(&command, wall)
    }

    fn decide(&self, command: &Command<'_>, wall: u64) -> Result<Reply, Refusal> {
        if !command.is_of_row() {
            return Ok(Reply::Integer(0));
        }
        self.step(|view| decide(command, view.table.schema(), view, wall))
    }

    /// Has a row decide what changes of it, and makes the change.
    fn step<'c, R>(
        &self,
        decide: impl Fn(&Shown<'_>) -> Result<(Option<Change<'c>>, R), Refusal>,
    ) -> Result<R, Refusal> {
        self.call(|table| {
            table.decide(self.key, |row| match decide(&Shown { table, row }) {
                Ok((change, told)) => (change, Ok(told)),
                Err(refusal) => (None, Err(refusal)),
            })
        })?
    }
}

/// A row of a table as commands see it.
struct Shown<'a> {
    table: &'a Table,
    row: &'a Seen<'a>,
}

impl View for Shown<'_> {
    fn is_there(&self) -> bool {
        self.row.is_there()
    }

    fn value(&self, column: usize) -> Value<'_> {
        self.row.value(&self.table.schema().columns()[column])
    }

    fn left(&self) -> Option<Duration> {
        self.row.left()
    }

    fn expiry(&self, ttl: Ttl) -> u64 {
        self.table.expiry(ttl, self.row.now)
    }
}

/// Does one command on the row that an argument names.
fn one(call: &mut Call<'_, '_>, verb: Verb) {
    // The time of day is read for what needs it alone.
    let wall = if verb.is_of_time() { call.core.shared.queues.wall() } else { 0 };
    answer(call, |asked, reply| {
        asked.row(verb.row_at())?.run(verb, wall)?.write(reply);
        Ok(())
    });
}

fn column<'a>(table: &'a Table, name: &[u8]) -> Result<&'a Column, Refusal> {
    Ok(interlock_rows::parse::column(table.schema(), name)?.1)
}

impl<'a> interlock_rows::Arguments<'a> for Arguments<'a> {
    fn count(self) -> usize {
        self.len()
    }

    fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }
}
