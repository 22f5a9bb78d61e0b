//! Calls that are the keeper's: writes to a table that a node keeps, and NODE.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::catalog::Access;
use crate::command::Call;
use crate::kept::{Caller, Keeper};
use crate::pending::Pending;
use crate::tables::ServedTable;
use crate::users::named_row;

/// Answers, or has its keeper answer, what would write rows of a kept table. False: it is the worker's to do.
pub fn is_for_keeper(call: &mut Call<'_, '_>) -> bool {
    if !call.command.has_flag("write") {
        return false;
    }
    let Some(table) = kept(call) else { return false };
    match table {
        Kept::Alone(keeper) => give(call, &keeper),
        Kept::Among(name) => call.error(&format!(
            "CROSSTABLE table '{name}' is kept by a node, and a call that writes to it writes to no \
             other: send a call for each table"
        )),
    }
    true
}

/// NODE, whatever it says.
pub fn node(call: &mut Call<'_, '_>) {
    match call.core.local.live.tables.keeper().cloned() {
        Some(keeper) => give(call, &keeper),
        None => call.error(NO_NODE),
    }
}

/// The tables of a call, of which one at least is kept.
enum Kept {
    /// All rows are of one table.
    Alone(Arc<Keeper>),
    /// They are of several; the name of one that is kept.
    Among(String),
}

/// `None`: no table of the call is kept, or what it names is none, which is the command's to refuse.
fn kept(call: &Call<'_, '_>) -> Option<Kept> {
    let (from, count) = match call.command.access {
        Access::Rows => (1, usize::MAX),
        Access::Row => (1, 1),
        Access::TableRow | Access::TableName => (2, 1),
        _ => return None,
    };
    let tables = &call.core.local.live.tables;
    let (mut first, mut found): (Option<&Arc<ServedTable>>, Option<&Arc<ServedTable>>) =
        (None, None);
    let mut several = false;
    for name in call.arguments.from(from).take(count) {
        let name = match call.command.access {
            Access::TableName => name,
            _ => named_row(name)?.0,
        };
        let table = tables.named(name)?;
        several |= first.is_some_and(|first| first.id != table.id);
        first = first.or(Some(table));
        found = found.or_else(|| table.keeper.is_some().then_some(table));
    }
    let table = found?;
    table.calls.fetch_add(1, Relaxed);
    let keeper = table.keeper.clone()?;
    Some(if several { Kept::Among(table.name.clone()) } else { Kept::Alone(keeper) })
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

const NO_NODE: &str =
    "ERR this hub is no node of a cluster: none of its tables is kept by one; `interlock node` starts one";
