//! PUBSUB CHANNELS and SHARDCHANNELS: through all topics there are, some of them a turn.
//!
//! Between two steps the worker serves its other connections. A topic that comes or goes meanwhile may
//! be told, or not.

use super::{Call, Waiting};
use crate::events::Answer;
use crate::glob;
use crate::reactor::mailbox::Mail;
use crate::resp::write::Writer;
use crate::shared::Core;
use crate::state::State;
use crate::topics::{Kind, Name, STRIPES};

#[derive(Debug)]
pub struct Listing {
    kind: Kind,
    pattern: Option<Box<[u8]>>,
    /// The next part of the directory.
    stripe: usize,
    /// Of the one before, what was not yet compared.
    left: Vec<Name>,
    found: Vec<Name>,
    /// Bytes that the answer has, about.
    size: usize,
}

pub fn channels(call: &mut Call<'_, '_>) {
    list(call, Kind::Topic);
}

pub fn shardchannels(call: &mut Call<'_, '_>) {
    list(call, Kind::Shard);
}

fn list(call: &mut Call<'_, '_>, kind: Kind) {
    if call.arguments.len() > 3 {
        return call.wrong_count("PUBSUB");
    }
    let pattern = call.arguments.get(2);
    if let Some(text) = pattern.and_then(glob::refusal) {
        return call.error(&text);
    }
    let (left, found) = Default::default();
    let listing =
        Listing { kind, pattern: pattern.map(Into::into), stripe: 0, left, found, size: 0 };
    listing.go_on(call.state, call.core, &mut call.reply);
}

impl Listing {
    pub fn go_on(mut self, state: &mut State, core: &mut Core<'_>, reply: &mut Writer<'_>) {
        let done = self.step(core);
        if self.size > MOST_ANSWERED {
            let text = format!("ERR more than {MOST_ANSWERED} bytes of topics; give a pattern");
            core.count_error(text.as_bytes());
            return reply.error(text.as_bytes());
        }
        if done {
            reply.array(self.found.len());
            return self.found.iter().for_each(|name| reply.bulk(name));
        }
        state.waiting = Some(Box::new(Waiting::Listing(self)));
        // Comes with the next turn.
        core.shared.send(core.local.worker, Mail::Answer(state.card.token, Answer::Yes));
    }

    /// False: there is more to go through.
    fn step(&mut self, core: &Core<'_>) -> bool {
        let mut budget = STEPS;
        while self.size <= MOST_ANSWERED {
            while let Some(name) = self.left.pop() {
                let pattern = self.pattern.as_deref();
                let cost = OF_A_NAME + pattern.map_or(0, |pattern| pattern.len() * name.len());
                if pattern.is_none_or(|pattern| glob::matches(pattern, &name)) {
                    self.size += name.len() + OF_A_BULK;
                    self.found.push(name);
                }
                match budget.checked_sub(cost) {
                    Some(rest) => budget = rest,
                    None => return false,
                }
            }
            if self.stripe == STRIPES {
                return true;
            }
            self.left = core.shared.directory.names(self.kind, self.stripe);
            self.stripe += 1;
        }
        true
    }
}

/// Bytes compared in one turn, at most, and one name more.
const STEPS: usize = 4 << 20;
/// The cost of a look at a name, as bytes compared.
const OF_A_NAME: usize = 64;
/// Bytes of an answer: it is written in one go, and goes out as one.
const MOST_ANSWERED: usize = 32 << 20;
/// `$`, a length and two line ends.
const OF_A_BULK: usize = 9;
