//! PUBSUB CHANNELS and SHARDCHANNELS: walk all topics, some per turn. A user sees only topics that
//! it has a right to.
//!
//! Between two steps the worker serves its other connections. A topic that appears or disappears
//! meanwhile may or may not be listed.

use crate::command::pending::{Listing, Pending};
use crate::command::state::State;
use crate::command::Call;
use crate::glob;
use crate::resp::write::Writer;
use crate::shared::events::Answer;
use crate::shared::mailbox::Mail;
use crate::shared::Core;
use crate::topics::directory::{SubscriptionKind, STRIPES};

pub fn channels(call: &mut Call<'_, '_>) {
    list(call, SubscriptionKind::Topic);
}

pub fn shardchannels(call: &mut Call<'_, '_>) {
    list(call, SubscriptionKind::Shard);
}

fn list(call: &mut Call<'_, '_>, kind: SubscriptionKind) {
    if call.arguments.len() > 3 {
        return call.wrong_count("PUBSUB");
    }
    let pattern = call.arguments.get(2);
    if let Some(text) = pattern.and_then(glob::refusal) {
        return call.error(&text);
    }
    let (left, found) = Default::default();
    let (pattern, user) = (pattern.map(Into::into), call.state.user.clone());
    let listing = Listing { kind, user, pattern, stripe: 0, left, found, size: 0 };
    go_on(listing, call.state, call.core, &mut call.reply);
}

/// Continues a list of topics by one step.
pub fn go_on(mut listing: Listing, state: &mut State, core: &mut Core<'_>, reply: &mut Writer<'_>) {
    let done = listing.step(core);
    if listing.size > MOST_ANSWERED {
        let text = format!("ERR more than {MOST_ANSWERED} bytes of topics; give a pattern");
        core.count_error(text.as_bytes());
        return reply.error(text.as_bytes());
    }
    if done {
        reply.array(listing.found.len());
        return listing.found.iter().for_each(|name| reply.bulk(name));
    }
    state.pending = Some(Box::new(Pending::Listing(listing)));
    // Comes with the next turn.
    core.shared.send(core.local.worker, Mail::Answer(state.card.token, Answer::Turn));
}

impl Listing {
    /// False: there is more to go through.
    fn step(&mut self, core: &Core<'_>) -> bool {
        let mut budget = STEPS;
        while self.size <= MOST_ANSWERED {
            while let Some(name) = self.left.pop() {
                let pattern = self.pattern.as_deref();
                let cost = OF_A_NAME + pattern.map_or(0, |pattern| pattern.len() * name.len());
                if pattern.is_none_or(|pattern| glob::matches(pattern, &name))
                    && self.user.as_ref().is_some_and(|user| user.may_see(&name))
                {
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
