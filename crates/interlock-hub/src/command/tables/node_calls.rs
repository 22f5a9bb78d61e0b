//! Calls that are not the worker's to do: writes to a table that somebody else writes, TABLE BARRIER and TABLE
//! TIME, which go the same way, and NODE.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use crate::access::users::named_row;
use crate::catalog::{self, Access, Action, Command};
use crate::command::pending::Pending;
use crate::command::state::State;
use crate::command::Call;
use crate::resp::parse::Arguments;
use crate::shared::Shared;
use crate::tables::keeper::Caller;
use crate::tables::reply_order::Line;
use crate::tables::served::{ServedTable, Tables};
use crate::tables::writes::{is_same, Batches, Desk, Numbered, RowWrites, Waiting, MOST_NAME};

/// Passes a command that writes a node's rows to the node, or refuses it. False: this worker handles the
/// command.
pub fn is_given(call: &mut Call<'_, '_>) -> bool {
    let local = &mut *call.core.local;
    let Some(given) = given(call.command, call.arguments, &local.live.tables) else { return false };
    let Given { table, several } = given;
    table.calls.fetch_add(1, Relaxed);
    if several {
        let text = across(&table.name);
        call.error(&text);
    } else if let Some(writes) = &table.writes {
        write(call.state, call.core.shared, &mut local.writes, writes, call.arguments, None);
    }
    true
}

/// Returns whether a call is done behind writes that wait, before they are answered: it goes to the same
/// writer.
pub fn follows(line: &Line, command: &Command, arguments: Arguments<'_>, tables: &Tables) -> bool {
    let Some((command, arguments)) = bare(command, arguments) else { return false };
    let given = given(command, arguments, tables).filter(|given| !given.several);
    let writes = given.and_then(|given| given.table.writes.as_ref());
    writes.is_some_and(|writes| is_same(writes, &line.writes))
}

/// Returns whether all rows of a call are of tables with the same writer, which is not the hub.
pub fn is_of_one_writer(command: &Command, arguments: Arguments<'_>, tables: &Tables) -> bool {
    let given = given(command, arguments, tables).filter(|given| !given.several);
    given.is_some_and(|given| given.table.writes.is_some())
}

/// TABLE CLIENT: does the command in it.
pub fn numbered(call: &mut Call<'_, '_>) {
    let client = match client(call.arguments) {
        Ok(client) => client,
        Err(text) => return call.error(text),
    };
    let arguments = call.arguments.behind(NUMBERED);
    let command = match catalog::find(arguments) {
        Ok(command) if goes_to_writer(command) => command,
        Ok(command) => {
            let text = format!("ERR '{}' does not write rows", command.name);
            return call.error(&text);
        }
        Err(unknown) => return call.error_bytes(&unknown.text(arguments)),
    };
    match command.refusal(arguments, call.state, call.core) {
        Some(text) => call.error_bytes(&text),
        None => to_log(call, command, arguments, Some(client)),
    }
}

/// TABLE TIME.
pub fn time(call: &mut Call<'_, '_>) {
    to_log(call, call.command, call.arguments, None);
}

fn to_log(
    call: &mut Call<'_, '_>,
    command: &Command,
    arguments: Arguments<'_>,
    client: Option<Numbered>,
) {
    let local = &mut *call.core.local;
    match given(command, arguments, &local.live.tables) {
        Some(Given { table, several: true }) => {
            let text = across(&table.name);
            call.error(&text);
        }
        Some(Given { table, .. }) if table.writes.is_some() => {
            table.calls.fetch_add(1, Relaxed);
            if let Some(writes) = &table.writes {
                write(call.state, call.core.shared, &mut local.writes, writes, arguments, client);
            }
        }
        _ => call.error(NO_LOG),
    }
}

/// The words before the command of TABLE CLIENT.
fn client(arguments: Arguments<'_>) -> Result<Numbered, &'static str> {
    let number = |at, least: u64| {
        let text = std::str::from_utf8(&arguments[at]).ok()?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
        let found = text.parse::<u64>().ok().filter(|_| is_plain)?;
        (least..=MOST_NUMBER).contains(&found).then_some(found)
    };
    let name = arguments[2].to_vec();
    if !(1..=MOST_NAME).contains(&name.len()) {
        return Err("ERR the client's name is empty or too long; allowed: 1 to 128 bytes");
    }
    let number_of = number(3, 1).ok_or("ERR the number is out of range; allowed: 1 to 2^63 - 1")?;
    let deadline = number(4, 0).ok_or("ERR the deadline is not a time in ms")?;
    Ok(Numbered { name, number: number_of, deadline })
}

/// The command of TABLE CLIENT and its words; of other commands they themselves.
fn bare<'a>(
    command: &'a Command,
    arguments: Arguments<'a>,
) -> Option<(&'a Command, Arguments<'a>)> {
    if command.action != Action::TableClient {
        return Some((command, arguments));
    }
    let inner = arguments.behind(NUMBERED);
    if inner.is_empty() {
        return None;
    }
    let found = catalog::find(inner).ok().filter(|found| goes_to_writer(found));
    found.map(|found| (found, inner))
}

/// Returns whether a command writes rows, or waits for those who do.
pub fn goes_to_writer(command: &Command) -> bool {
    let is_of_log = matches!(command.action, Action::TableBarrier | Action::TableTime);
    is_of_log || command.has_flag("write") && command.action != Action::TableClient
}

/// NODE, whatever it says.
pub fn node(call: &mut Call<'_, '_>) {
    let Some(keeper) = call.core.local.live.tables.keeper().cloned() else {
        return call.error(NO_NODE);
    };
    let (card, shared) = (&call.state.card, call.core.shared);
    let caller = Caller {
        host: &shared.post,
        worker: card.worker,
        token: card.token,
        user: call.state.user.as_ref(),
        resp3: call.reply.resp3,
    };
    // The reply comes when the keeper gives it.
    match keeper.ask(caller, call.arguments) {
        Ok(number) => call.state.pending = Some(Box::new(Pending::Kept { keeper, number })),
        Err(text) => call.error(&text),
    }
}

/// A table of a call that the hub does not write, the first of them.
struct Given<'a> {
    table: &'a Arc<ServedTable>,
    /// The call names other tables beside.
    several: bool,
}

/// `None`: the call neither writes nor waits for writes, or the hub writes all its tables, or the
/// table does not exist, which the command reports.
fn given<'a>(command: &Command, arguments: Arguments<'_>, tables: &'a Tables) -> Option<Given<'a>> {
    if !goes_to_writer(command) {
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

/// The reply comes behind those to the writes before it.
fn write(
    state: &mut State,
    shared: &Shared,
    batches: &mut Batches,
    writes: &Arc<dyn RowWrites>,
    arguments: Arguments<'_>,
    client: Option<Numbered>,
) {
    let (first, silent, arguments) = (state.next_write, state.is_silent(), arguments.from(0));
    let line = state.line.get_or_insert_with(|| Box::new(Line::new(writes.clone(), first)));
    let (worker, token, resp3) = (state.card.worker, state.card.token, state.resp3);
    let (desk, count) = (|| Desk { worker, host: shared.written.clone() }, arguments.len());
    let goes_on = state.transaction.as_ref().is_some_and(|transaction| transaction.goes_on());
    batches.add(writes, (client, goes_on), arguments, desk, |desk, bytes| {
        let number = line.wait(bytes + count * OF_AN_ARGUMENT, silent);
        Waiting::new(desk, token, number, resp3)
    });
}

fn across(table: &str) -> String {
    format!(
        "CROSSTABLE table '{table}' is written by a node, so a call that writes to it cannot \
         write to others: send one call per table"
    )
}

/// TABLE CLIENT NAME NUMBER DEADLINE.
const NUMBERED: usize = 5;
/// No client counts beyond these numbers and times.
const MOST_NUMBER: u64 = i64::MAX as u64;
const NO_LOG: &str =
    "NOLOG the command writes to no table on a log: omit the number and the deadline";
/// Bytes of an argument beside what it says.
const OF_AN_ARGUMENT: usize = 32;
const NO_NODE: &str = "ERR this hub is not a node of a cluster; `interlock node` starts one";
