//! FCALL: the functions of keyed queues.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

use interlock_engine::{queue_name, Account, Args, Class, Function, Outcome, Served};

use super::Call;
use crate::access::registry::Card;
use crate::command::pending::Pending;
use crate::command::state::State;
use crate::resp::parse::{self, Arguments};
use crate::resp::write::Writer;
use crate::shared::events::{Answer, Change};
use crate::shared::queues::ticket;
use crate::shared::Core;

pub fn call(call: &mut Call<'_, '_>) {
    let Some(function) = called(call) else { return };
    if function.class_of(call.arguments.get(4)) == Class::Operate
        && function.class() != Class::Operate
        && !call.state.user.as_ref().is_some_and(|user| user.may_call(OPERATES))
    {
        let (name, user) = (call.command.name, call.state.card.user_name());
        let word = String::from_utf8_lossy(&call.arguments[4]).into_owned();
        let text = format!(
            "NOPERM this user has no permissions to run the '{name}' command with {word}; on this \
             hub [[user]] {user:?} needs \"@operate\" in commands"
        );
        audit_refusal(function, call.arguments, call.state, call.core, &text);
        return call.error(&text);
    }
    let (token, arguments) = (call.state.card.token, call.arguments);
    let payer = call.state.user.as_ref().and_then(|user| user.account.as_ref());
    let from = call.reply.out.len();
    let outcome = make(call.core, token, payer, function, arguments, call.reply.out);
    if function == Function::Ask || function.class_of(arguments.get(4)) == Class::Operate {
        audit(call, function, &outcome, from);
    }
    match outcome {
        Outcome::Done => {}
        Outcome::Parked => {
            call.state.card.blocked.store(true, Relaxed);
            call.state.pending = Some(Box::new(Pending::Queue));
        }
        Outcome::Refused(refused) => call.error(&refused.0),
    }
}

/// Notes an operator's call that its user's rights refuse: of one user and function once a second.
#[cold]
pub fn audit_refusal(
    function: Function,
    arguments: Arguments<'_>,
    state: &State,
    core: &Core<'_>,
    why: &str,
) {
    let operates =
        function == Function::Ask || function.class_of(arguments.get(4)) == Class::Operate;
    // The dashboard asks by `il1_forget`, of each queue, whether its user may operate it.
    if !operates || function == Function::Forget {
        return;
    }
    if core.shared.denials.is_new(&state.card.user_name(), function.name(), core.now) {
        note(function, arguments, state, core, format!("refused: {why}"));
    }
}

/// Notes an operator's call, whose reply begins at `from`.
#[cold]
fn audit(call: &Call<'_, '_>, function: Function, outcome: &Outcome, from: usize) {
    let result = match outcome {
        Outcome::Refused(refused) => format!("refused: {}", refused.0),
        _ if function == Function::Configure => "changed".to_owned(),
        // The outcome of such a call is the first string of its reply.
        _ => {
            let reply = String::from_utf8_lossy(&call.reply.out[from..]);
            match reply.split("\r\n").nth(2) {
                Some("1") if function != Function::Purge => "changed".to_owned(),
                Some("0") if function != Function::Purge => "unchanged".to_owned(),
                Some(first) if !first.is_empty() => first.to_owned(),
                _ => "unchanged".to_owned(),
            }
        }
    };
    // The dashboard calls it, without effect, to check for each queue whether its user may operate it.
    if function == Function::Forget && result == "unchanged" {
        return;
    }
    note(function, call.arguments, call.state, call.core, result);
}

fn note(
    function: Function,
    arguments: Arguments<'_>,
    state: &State,
    core: &Core<'_>,
    result: String,
) {
    // Payloads are nobody's business.
    let most = match function {
        Function::Restore => 0,
        Function::Requeue | Function::Discard => 1,
        _ => MOST_ARGUMENTS,
    };
    let mut what: Vec<u8> = arguments.from(4).take(most).collect::<Vec<_>>().join(&b' ');
    what.truncate(MOST_WHAT);
    what.shrink_to_fit();
    let card = &state.card;
    core.shared.events.audit(Change {
        user: card.user_name(),
        address: card.address.clone(),
        action: function.name(),
        queue: arguments.get(3).and_then(queue_name).unwrap_or_default().to_vec(),
        what,
        result,
    });
}

/// Arguments of a call that the audit log shows, and bytes of them together.
const MOST_ARGUMENTS: usize = 16;
const MOST_WHAT: usize = 256;

/// The names of those queues that the user has a right to.
pub fn list(call: &mut Call<'_, '_>) {
    if called(call).is_none() {
        return;
    }
    let user = &call.state.user;
    let shown = |name: &[u8]| user.as_ref().is_some_and(|user| user.queues.hold(name));
    let engine = &call.core.shared.queues.engine;
    let told = engine.tell_names(&Behind(call.arguments.behind(3)), shown, call.reply.out);
    if let Err(refused) = told {
        call.error(&refused.0);
    }
}

/// The function, once its number of keys is right.
fn called(call: &mut Call<'_, '_>) -> Option<Function> {
    let Some(function) = Function::named(&call.arguments[1]) else {
        call.error("ERR Function not found");
        return None;
    };
    let wrong = match parse::integer(&call.arguments[2]) {
        None => "ERR Bad number of keys provided",
        Some(count) if count < 0 => "ERR Number of keys can't be negative",
        Some(count) if count > call.arguments.len() as i64 - 3 => {
            "ERR Number of keys can't be greater than number of args"
        }
        Some(count) if count == i64::from(function.takes_queue()) => return Some(function),
        Some(_) if function.takes_queue() => {
            let text = "takes one key, il:{name}, without other braces";
            call.error(&format!("BADARG il1_{}: {text}", function.name()));
            return None;
        }
        Some(_) => {
            call.error(&format!("BADARG il1_{}: takes no key", function.name()));
            return None;
        }
    };
    call.error(wrong);
    None
}

/// A parked call was answered.
pub fn answered(answer: Answer, state: &mut State, core: &mut Core<'_>, reply: Writer<'_>) {
    state.card.blocked.store(false, Relaxed);
    let Answer::Reply(bytes) = answer else {
        state.closing = true;
        return;
    };
    if bytes.first() == Some(&b'-') {
        core.count_error(&bytes[1..]);
    }
    reply.out.extend_from_slice(&bytes);
}

/// Makes a call for a connection; `payer` is the user whose memory limit applies. Other connections
/// that the call serves get their replies when the turn is committed.
fn make(
    core: &mut Core<'_>,
    token: u64,
    payer: Option<&Arc<Account>>,
    function: Function,
    arguments: Arguments<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let (key, args) = match function.takes_queue() {
        true => (arguments.get(3), Behind(arguments.behind(4))),
        false => (None, Behind(arguments.behind(3))),
    };
    let queues = &core.shared.queues;
    let local = &mut *core.local;
    if queues.durable.is_some() && local.callers.last() != Some(&token) {
        local.callers.push(token);
    }
    let ticket = Some(ticket(local.worker, token));
    let now = queues.now();
    queues.engine.call_for(payer, function, key, &args, now, ticket, out, &mut local.served)
}

/// Ends the wait of a connection's call: as if its time were over, or by this error. False: it does not wait.
pub fn unblock(core: &mut Core<'_>, card: &Card, error: Option<&str>) -> bool {
    let queues = &core.shared.queues;
    let ticket = ticket(card.worker, card.token);
    let now = queues.now();
    let by_queue = match error {
        None => queues.engine.give_up(ticket, now, &mut core.local.served),
        Some(text) => {
            let waited = queues.engine.forget(ticket);
            if waited {
                let reply = format!("-{text}\r\n").into_bytes();
                core.local.served.push(Served { ticket, reply });
            }
            waited
        }
    };
    by_queue
        || card.blocked.load(Relaxed) && {
            core.shared.readings.unblock(card.worker, card.token, error.map(str::to_owned));
            true
        }
}

/// The arguments of a function, behind those of FCALL.
struct Behind<'a>(Arguments<'a>);

impl Args for Behind<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn get(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

/// A user with the right to this function is an operator.
const OPERATES: &str = "fcall|il1_pause";
