//! FCALL: the functions of keyed queues.

use interlock_engine::{Class, Function, Outcome};

use super::{Call, Waiting};
use crate::events::Answer;
use crate::queues;
use crate::resp::parse;
use crate::resp::write::Writer;
use crate::shared::Core;
use crate::state::State;

pub fn call(call: &mut Call<'_, '_>) {
    let Some(function) = called(call) else { return };
    if function.class_of(call.arguments.get(4)) == Class::Operate
        && function.class() != Class::Operate
        && !call.state.user.as_ref().is_some_and(|user| user.may_call(OPERATES))
    {
        let name = call.command.name;
        let text = format!("NOPERM this user has no permissions to run the '{name}' command");
        return call.error(&format!("{text} with REPLACE"));
    }
    let (token, arguments) = (call.state.card.token, call.arguments);
    let payer = call.state.user.as_ref().and_then(|user| user.account.as_ref());
    match queues::call(call.core, token, payer, function, arguments, call.reply.out) {
        Outcome::Done => {}
        Outcome::Parked => call.state.waiting = Some(Box::new(Waiting::Queue)),
        Outcome::Refused(refused) => call.error(&refused.0),
    }
}

/// The names of those queues that the user has a right to.
pub fn list(call: &mut Call<'_, '_>) {
    if called(call).is_none() {
        return;
    }
    let user = &call.state.user;
    let shown = |name: &[u8]| user.as_ref().is_some_and(|user| user.queues.hold(name));
    let told = queues::tell_names(call.core, call.arguments, shown, call.reply.out);
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
    let Answer::Reply(bytes) = answer else {
        state.closing = true;
        return;
    };
    if bytes.first() == Some(&b'-') {
        core.count_error(&bytes[1..]);
    }
    reply.out.extend_from_slice(&bytes);
}

/// Whoever may call this one operates.
const OPERATES: &str = "fcall|il1_pause";
