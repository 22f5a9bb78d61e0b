//! The commands that are the controller's to do: CONFIG, SHUTDOWN.

use std::process;

use crate::command::pending::Pending;
use crate::command::state::State;
use crate::command::Call;
use crate::glob;
use crate::resp::write::Writer;
use crate::shared::events::{Answer, Question};
use crate::shared::Core;

/// CONFIG GET, by patterns as in Redis.
pub fn get(call: &mut Call<'_, '_>) {
    let asked: Vec<&[u8]> = call.arguments.from(2).collect();
    let size: usize = asked.iter().map(|pattern| pattern.len()).sum();
    if size > MOST_ASKED {
        return call.error(&format!("ERR patterns of more than {MOST_ASKED} bytes together"));
    }
    let matches = |pattern: &[u8], name: &[u8]| glob::matches(&pattern.to_ascii_lowercase(), name);
    let live = call.core.local.live.clone();
    let mut found: Vec<(&[u8], &str)> = Vec::new();
    for (name, value) in &live.shown {
        let name = name.as_bytes();
        if let Some(pattern) = asked.iter().find(|pattern| matches(pattern, name)) {
            // A setting asked for by name is returned in the spelling of the request.
            let same = pattern.eq_ignore_ascii_case(name);
            found.push((if same { pattern } else { name }, value));
        }
    }
    call.reply.map(found.len());
    for (name, value) in found {
        call.reply.bulk(name);
        call.reply.bulk(value.as_bytes());
    }
}

/// Bytes of patterns of one CONFIG GET: each is compared with each name.
const MOST_ASKED: usize = 16 << 10;
/// Names and values of one CONFIG SET, of which each is looked at by the controller.
const MOST_SET: usize = 1_000;

pub fn set(call: &mut Call<'_, '_>) {
    if call.arguments.len() % 2 == 1 {
        return call.syntax_error();
    }
    let words: Vec<&[u8]> = call.arguments.from(2).collect();
    if words.len() > MOST_SET {
        return call.error(&format!("ERR more than {} settings", MOST_SET / 2));
    }
    let pairs = words.chunks_exact(2).map(|pair| (pair[0].to_vec(), pair[1].to_vec())).collect();
    order(call, Question::Set(pairs));
}

/// Counters, also those of /metrics, begin at 0 again.
pub fn reset_statistics(call: &mut Call<'_, '_>) {
    call.core.local.count(call.core.shared, call.core.now);
    call.core.shared.counters.reset();
    call.core.shared.statistics.reset();
    call.reply.ok();
}

pub fn reload(call: &mut Call<'_, '_>) {
    order(call, Question::Reload);
}

/// Redis leaves it to everybody who is connected. Here it takes somebody who has logged in.
pub fn shutdown(call: &mut Call<'_, '_>) {
    let known = ["NOSAVE", "SAVE", "NOW", "FORCE"];
    for at in 1..call.arguments.len() {
        if call.is(at, "ABORT") {
            return call.error("ERR No shutdown in progress.");
        }
        if !known.iter().any(|word| call.is(at, word)) {
            return call.syntax_error();
        }
    }
    if !call.state.logged_in {
        let text = format!(
            "NOPERM SHUTDOWN is for users that have logged in with a password and have the right to \
             it; or send TERM to process {}",
            process::id()
        );
        return call.error(&text);
    }
    order(call, Question::Shutdown);
}

fn order(call: &mut Call<'_, '_>, question: Question) {
    if call.core.shared.settings.controlled {
        let pending = Pending::Order { closes: question == Question::Shutdown };
        return call.ask(question, pending);
    }
    call.error("ERR this hub cannot be reconfigured or stopped by a command");
}

pub fn answered(
    answer: Answer,
    closes: bool,
    state: &mut State,
    core: &mut Core<'_>,
    mut reply: Writer<'_>,
) {
    match answer {
        // As in Redis: the end of the connection is the answer.
        Answer::Accepted if closes => state.closing = true,
        Answer::Accepted => reply.ok(),
        Answer::Refused(text) => {
            core.count_error(text.as_bytes());
            reply.error(text.as_bytes());
        }
        Answer::Reply(_) | Answer::Turn => {}
    }
}
