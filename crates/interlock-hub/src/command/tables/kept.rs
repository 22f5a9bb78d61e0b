//! Calls that are not the worker's to do: writes to a table that somebody else writes, TABLE BARRIER, which goes
//! the same way, and NODE.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::catalog::{Access, Action, Command};
use crate::command::Call;
use crate::kept::{Caller, Keeper};
use crate::line::Line;
use crate::pending::Pending;
use crate::resp::parse::Arguments;
use crate::shared::Shared;
use crate::state::State;
use crate::tables::{ServedTable, Tables};
use crate::users::named_row;
use crate::writes::{is_same, Batches, Desk, RowWrites, Waiting, Write};

/// Gives away, or refuses, what would write rows that the hub does not write. False: it is the worker's to
/// do.
pub fn is_given(call: &mut Call<'_, '_>) -> bool {
    let local = &mut *call.core.local;
    let Some(given) = given(call.command, call.arguments, &local.live.tables) else { return false };
    let Given { table, several } = given;
    table.calls.fetch_add(1, Relaxed);
    if several {
        let text = format!(
            "CROSSTABLE table '{}' is kept by a node, and a call that writes to it writes to no other: \
             send a call for each table",
            table.name
        );
        call.error(&text);
    } else if let Some(writes) = &table.writes {
        write(call.state, call.core.shared, &mut local.writes, writes, call.arguments);
    } else if let Some(keeper) = table.keeper.clone() {
        give(call, &keeper);
    }
    true
}

/// Returns whether a call is done behind writes that wait, before they are answered: it goes to the same
/// writer.
pub fn follows(line: &Line, command: &Command, arguments: Arguments<'_>, tables: &Tables) -> bool {
    let given = given(command, arguments, tables).filter(|given| !given.several);
    let writes = given.and_then(|given| given.table.writes.as_ref());
    writes.is_some_and(|writes| is_same(writes, &line.writes))
}

/// NODE, whatever it says.
pub fn node(call: &mut Call<'_, '_>) {
    match call.core.local.live.tables.keeper().cloned() {
        Some(keeper) => give(call, &keeper),
        None => call.error(NO_NODE),
    }
}

/// A table of a call that the hub does not write, the first of them.
struct Given<'a> {
    table: &'a Arc<ServedTable>,
    /// The call names other tables beside.
    several: bool,
}

/// `None`: the call neither writes nor waits for writes, the hub writes all its tables, or what it names is none, which is the
/// command's to refuse.
fn given<'a>(command: &Command, arguments: Arguments<'_>, tables: &'a Tables) -> Option<Given<'a>> {
    if !command.has_flag("write") && command.action != Action::TableBarrier {
        return None;
    }
    let (from, count) = match command.access {
        Access::Rows => (1, usize::MAX),
        Access::Row => (1, 1),
        Access::TableRow | Access::TableName => (2, 1),
        _ => return None,
    };
    let (mut first, mut found): (Option<&Arc<ServedTable>>, Option<&Arc<ServedTable>>) =
        (None, None);
    let mut several = false;
    for name in arguments.from(from).take(count) {
        let name = match command.access {
            Access::TableName => name,
            _ => named_row(name)?.0,
        };
        let table = tables.named(name)?;
        several |= first.is_some_and(|first| first.id != table.id);
        first = first.or(Some(table));
        found = found.or_else(|| table.is_given().then_some(table));
    }
    Some(Given { table: found?, several })
}

/// The reply comes when the keeper gives it.
fn give(call: &mut Call<'_, '_>, keeper: &Arc<Keeper>) {
    let (card, shared) = (&call.state.card, call.core.shared);
    let caller = Caller {
        host: &shared.post,
        worker: card.worker,
        token: card.token,
        user: call.state.user.as_ref(),
        resp3: call.reply.resp3,
    };
    match keeper.ask(caller, call.arguments) {
        Ok(number) => {
            let keeper = keeper.clone();
            call.state.pending = Some(Box::new(Pending::Kept { keeper, number }));
        }
        Err(text) => call.error(&text),
    }
}

/// The reply comes behind those to the writes before it.
fn write(
    state: &mut State,
    shared: &Shared,
    batches: &mut Batches,
    writes: &Arc<dyn RowWrites>,
    arguments: Arguments<'_>,
) {
    let arguments: Vec<Vec<u8>> = arguments.from(0).map(<[u8]>::to_vec).collect();
    let bytes = arguments.iter().map(|argument| argument.len() + OF_AN_ARGUMENT).sum();
    let (first, silent) = (state.next_write, state.is_silent());
    let line = state.line.get_or_insert_with(|| Box::new(Line::new(writes.clone(), first)));
    let number = line.wait(bytes, silent);
    let (worker, token) = (state.card.worker, state.card.token);
    let desk = batches.desk(|| Desk { worker, host: shared.written.clone() });
    let waiting = Waiting::new(desk, token, number, state.resp3);
    batches.add(writes, Write { waiting, arguments });
}

/// Bytes of an argument beside what it says.
const OF_AN_ARGUMENT: usize = 32;
const NO_NODE: &str =
    "ERR this hub is no node of a cluster: none of its tables is kept by one; `interlock node` starts one";
