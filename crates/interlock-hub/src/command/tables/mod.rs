//! Commands on the rows of state tables: `table:key` names one.

pub mod hash;
pub mod kept;
pub mod keys;
pub mod rows;
mod scan;
mod values;

use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use interlock_table::{Column, Error, Row, Table, Ttl, Value, Where, Written};

use super::Call;
use crate::kept::STALE;
use crate::resp::parse::Arguments;
use crate::resp::write::Writer;
use crate::tables::{ServedTable, Tables};
use crate::time::Time;
use crate::users::{named_row, User};

pub use scan::{dbsize, scan};

/// The text of an error reply, its code first.
#[derive(Debug)]
pub struct Refusal(Vec<u8>);

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
    if call.core.local.live.tables.keeper().is_some() && kept::is_for_keeper(call) {
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

    /// Pairs of column and value, from an argument on.
    fn pairs(
        &self,
        table: &'a Table,
        from: usize,
    ) -> Result<Vec<(&'a Column, Value<'a>)>, Refusal> {
        let mut rest = self.arguments.from(from);
        let mut pairs = Vec::with_capacity(self.arguments.len().saturating_sub(from) / 2);
        while let Some(name) = rest.next() {
            let text = rest.next().ok_or_else(|| self.wrong_count())?;
            let column = column(table, name)?;
            pairs.push((column, values::given(column, text)?));
        }
        Ok(pairs)
    }

    fn wrong_count(&self) -> Refusal {
        let name = self.arguments[0].to_ascii_lowercase();
        let sub = (name == b"table").then(|| self.arguments[1].to_ascii_lowercase());
        let name = sub.map_or(name, |sub| [b"table|", &sub[..]].concat());
        Refusal([b"ERR wrong number of arguments for '", &name[..], b"' command"].concat())
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

    /// A row with these columns, the others 0 or empty.
    fn fresh(&self, pairs: &[(&Column, &Value)]) -> Result<Row, Error> {
        let mut row = Row::new(self.table().schema());
        for (column, value) in pairs {
            column.write(row.words_mut(), value)?;
        }
        Ok(row)
    }

    /// Sets columns of the row at once, and makes it if there is none. Returns whether it was made.
    fn set_columns(&self, pairs: &[(&'a Column, Value<'a>)]) -> Result<bool, Refusal> {
        let pairs: Vec<_> = pairs.iter().map(|(column, value)| (*column, value)).collect();
        self.call(|table| loop {
            if table.patch(self.key, &pairs)? {
                return Ok(false);
            }
            let row = self.fresh(&pairs)?;
            // Somebody may have made it since.
            if table.write(self.key, row.words(), Ttl::Usual, Where::Absent)? != Written::Not {
                return Ok(true);
            }
        })
    }
}

fn column<'a>(table: &'a Table, name: &[u8]) -> Result<&'a Column, Refusal> {
    let found = table.schema().columns().iter().find(|column| column.name.as_bytes() == name);
    found.ok_or_else(|| {
        let names = table.schema().columns().iter().map(|column| column.name.as_str());
        let names: Vec<_> = names.collect();
        let there = format!("'; there are {}", names.join(", "));
        Refusal([b"NOCOLUMN there is no column '", name, there.as_bytes()].concat())
    })
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let code = match error {
            Error::RowBusy { .. } | Error::TooManyWriters { .. } => "TRYAGAIN",
            Error::TableFull => "TABLEFULL",
            Error::Kept { .. } => "KEPT",
            Error::Value { .. } => "WRONGTYPE",
            Error::Overflow { .. } => {
                return "ERR increment or decrement would overflow".into();
            }
            _ => "ERR",
        };
        format!("{code} {error}").into()
    }
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal(text.into_bytes())
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        Refusal(text.into())
    }
}
