//! MULTI and EXEC at a node: calls on rows that wait, and are then made one after the other. Writes that follow
//! one another go to their writer as a group, of which all are done or none.

use std::collections::VecDeque;

use crate::catalog::{Access, Action, Command, Unknown};
use crate::command::state::State;
use crate::command::tables::node_calls;
use crate::resp::parse::{Arguments, Copied};
use crate::resp::write::Writer;
use crate::shared::Core;

/// The calls behind MULTI.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Each with whether it goes to the writer.
    queued: VecDeque<(Copied, bool)>,
    bytes: usize,
    /// A call was refused: none is made.
    is_refused: bool,
    /// EXEC has come.
    runs: bool,
}

/// A command of transactions. They are not in the catalog, for a hub has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Multi,
    Exec,
    Discard,
    Watch,
    Unwatch,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The command is not part of a transaction.
    No,
    /// The command was answered.
    Answered,
    /// EXEC: the calls are made next.
    Runs,
}

impl Transaction {
    /// Returns the next call to make, if EXEC has come.
    pub fn pop(&mut self) -> Option<(Copied, bool)> {
        if self.runs {
            self.queued.pop_front()
        } else {
            None
        }
    }

    /// The call cannot be made yet.
    pub fn put_back(&mut self, call: (Copied, bool)) {
        self.queued.push_front(call);
    }

    pub fn runs(&self) -> bool {
        self.runs
    }

    pub fn is_over(&self) -> bool {
        self.runs && self.queued.is_empty()
    }

    /// Returns whether a write is to be done together with the next.
    pub fn goes_on(&self) -> bool {
        self.runs && self.queued.front().is_some_and(|(_, writes)| *writes)
    }

    /// Bytes of the calls that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Answers a request if it is one of transactions, or is to wait for EXEC.
pub fn take(
    command: Result<&'static Command, Unknown>,
    arguments: Arguments<'_>,
    state: &mut State,
    core: &mut Core<'_>,
    out: &mut Vec<u8>,
) -> Taken {
    let word = Word::of(&arguments[0]);
    // A client that has not logged in gets that error instead.
    let is_served = core.local.live.tables.are_given() && state.user.is_some();
    if !is_served || (word.is_none() && state.transaction.is_none()) {
        return Taken::No;
    }
    let mut reply = Writer { out, resp3: state.resp3 };
    let Some(word) = word else {
        let leaves = command.is_ok_and(|command| matches!(command.name, "quit" | "reset"));
        if leaves {
            state.transaction = None;
            return Taken::No;
        }
        let refusal = refusal(command, arguments, state, core);
        let Some(transaction) = &mut state.transaction else { return Taken::No };
        match refusal {
            Some(text) => {
                transaction.is_refused = true;
                core.count_error(&text);
                reply.error(&text);
            }
            None => {
                transaction.bytes += size(arguments);
                let writes = command.is_ok_and(node_calls::goes_to_writer);
                transaction.queued.push_back((arguments.copied(), writes));
                reply.simple("QUEUED");
            }
        }
        return Taken::Answered;
    };
    let has_transaction = state.transaction.is_some();
    let refusal: Option<&[u8]> = match word {
        Word::Multi | Word::Exec | Word::Discard | Word::Unwatch if arguments.len() > 1 => {
            Some(b"ERR wrong number of arguments: MULTI, EXEC, DISCARD and UNWATCH have none")
        }
        Word::Multi if has_transaction => Some(b"ERR MULTI calls can not be nested"),
        Word::Exec if !has_transaction => Some(b"ERR EXEC without MULTI"),
        Word::Discard if !has_transaction => Some(b"ERR DISCARD without MULTI"),
        Word::Watch => Some(NO_WATCH),
        _ => None,
    };
    if let Some(text) = refusal {
        core.count_error(text);
        reply.error(text);
        return Taken::Answered;
    }
    match word {
        Word::Multi => state.transaction = Some(Box::default()),
        Word::Discard => state.transaction = None,
        Word::Exec => {
            let Some(mut transaction) = state.transaction.take() else { return Taken::Answered };
            if transaction.is_refused {
                core.count_error(ABORTED);
                reply.error(ABORTED);
                return Taken::Answered;
            }
            if !state.is_silent() {
                reply.array(transaction.queued.len());
            }
            if transaction.queued.is_empty() {
                return Taken::Answered;
            }
            transaction.runs = true;
            state.transaction = Some(transaction);
            return Taken::Runs;
        }
        Word::Watch | Word::Unwatch => {}
    }
    reply.simple("OK");
    Taken::Answered
}

/// Returns why a call may not wait for EXEC.
fn refusal(
    command: Result<&'static Command, Unknown>,
    arguments: Arguments<'_>,
    state: &State,
    core: &Core<'_>,
) -> Option<Vec<u8>> {
    let command = match command {
        Ok(command) => command,
        Err(unknown) => return Some(unknown.text(arguments)),
    };
    if let Some(text) = command.refusal(arguments, state, core) {
        return Some(text);
    }
    let is_of_rows =
        matches!(command.access, Access::Row | Access::Rows | Access::TableRow | Access::TableName);
    if !is_of_rows || command.action == Action::TableClient {
        let text = format!(
            "ERR '{}' is refused between MULTI and EXEC; allowed: commands on rows, without TABLE CLIENT",
            command.name
        );
        return Some(text.into_bytes());
    }
    let transaction = state.transaction.as_ref()?;
    if transaction.queued.len() >= MOST || transaction.bytes + size(arguments) > MOST_BYTES {
        return Some(TOO_MUCH.into());
    }
    let is_foreign = node_calls::goes_to_writer(command)
        && !node_calls::is_of_one_writer(command, arguments, &core.local.live.tables);
    is_foreign.then(|| FOREIGN.into())
}

impl Word {
    fn of(name: &[u8]) -> Option<Word> {
        let words = [
            ("multi", Word::Multi),
            ("exec", Word::Exec),
            ("discard", Word::Discard),
            ("watch", Word::Watch),
            ("unwatch", Word::Unwatch),
        ];
        let found = words.into_iter().find(|(word, _)| name.eq_ignore_ascii_case(word.as_bytes()));
        found.map(|(_, word)| word)
    }
}

fn size(arguments: Arguments<'_>) -> usize {
    OF_A_CALL + arguments.from(0).map(|argument| argument.len() + OF_AN_ARGUMENT).sum::<usize>()
}

/// Calls that wait, and their bytes.
const MOST: usize = 16_384;
const MOST_BYTES: usize = 16 << 20;
/// Bytes of a call and of an argument beside what they say.
const OF_A_CALL: usize = 64;
const OF_AN_ARGUMENT: usize = 8;
const ABORTED: &[u8] = b"EXECABORT nothing was done: a command between MULTI and EXEC was refused";
const NO_WATCH: &[u8] =
    b"ERR a node has no WATCH: TABLE CAS compares and sets the columns of a row in one step";
const TOO_MUCH: &str =
    "ERR a transaction has 16,384 commands and 16 MiB at most: send several, or a pipeline \
                        without MULTI (in redis-py transaction=False)";
const FOREIGN: &str =
    "ERR between MULTI and EXEC only rows of the node's own table can be written: this names another table";
