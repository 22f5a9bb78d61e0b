//! PUBSUB CLIENTS: who is subscribed to what.
//!
//! First the names, some per turn, keeping the first ones in order up to the limit. Then all
//! workers are asked for the subscribers of those.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::command::pending::{Gathering, Pending};
use crate::command::state::State;
use crate::command::Call;
use crate::glob;
use crate::resp::parse::integer;
use crate::resp::write::Writer;
use crate::shared::events::Answer;
use crate::shared::mailbox::Mail;
use crate::shared::Core;
use crate::topics::directory::{SubscriptionKind, STRIPES};
use crate::topics::survey::Survey;

pub fn clients(call: &mut Call<'_, '_>) {
    let (pattern, most) = match call.arguments.len() {
        2 => (None, None),
        3 => (call.arguments.get(2), None),
        4 if call.is(2, "LIMIT") => (None, call.arguments.get(3)),
        5 if call.is(3, "LIMIT") => (call.arguments.get(2), call.arguments.get(4)),
        4 | 5 => return call.syntax_error(),
        _ => return call.wrong_count("PUBSUB"),
    };
    if let Some(text) = pattern.and_then(glob::refusal) {
        return call.error(&text);
    }
    let most = match most.map(integer) {
        None => USUAL,
        Some(Some(most)) if (1..=MOST_TOLD).contains(&most) => most as usize,
        Some(_) => return call.error(&format!("ERR LIMIT should be 1 to {MOST_TOLD}")),
    };
    let gathering = Gathering {
        pattern: pattern.map(Into::into),
        most,
        part: 0,
        left: Vec::new(),
        first: BinaryHeap::new(),
        total: 0,
    };
    gather(gathering, call.state, call.core);
}

/// Continues to gather the names by one step.
pub fn gather(mut gathering: Gathering, state: &mut State, core: &mut Core<'_>) {
    if !gathering.step(core) {
        state.pending = Some(Box::new(Pending::Gathering(gathering)));
        // Comes with the next turn.
        core.shared.send(core.local.worker, Mail::Answer(state.card.token, Answer::Turn));
        return;
    }
    let Gathering { most, first, total, .. } = gathering;
    let (names, workers) = (first.into_sorted_vec(), core.shared.mailboxes.len());
    let survey = Arc::new(Survey::new(names, most, total, state.card.clone(), workers));
    core.shared.begin_survey(&survey);
    state.pending = Some(Box::new(Pending::Survey(survey)));
}

/// Answers, once all workers have told.
pub fn answered(
    survey: Arc<Survey>,
    state: &mut State,
    core: &mut Core<'_>,
    reply: &mut Writer<'_>,
) {
    if !survey.is_done() {
        state.pending = Some(Box::new(Pending::Survey(survey)));
        return;
    }
    let found = survey.take();
    let groups: Vec<_> = found.chunk_by(|one, other| one.0 == other.0).collect();
    let name_of = |index: usize| &survey.names[index];
    let of_clients = found.iter().map(|(_, card)| {
        OF_A_CLIENT + card.address.len() + card.name.lock().len() + card.user_name().len()
    });
    let of_names = groups.iter().map(|group| OF_A_NAME + name_of(group[0].0).1.len());
    if of_clients.sum::<usize>() + of_names.sum::<usize>() > MOST_ANSWERED {
        let text = format!("ERR more than {MOST_ANSWERED} bytes of clients; give a lower LIMIT");
        core.count_error(text.as_bytes());
        return reply.error(text.as_bytes());
    }
    reply.array(2);
    // Some may have come since the names were gathered.
    reply.integer(survey.total.max(found.len() as u64) as i64);
    reply.array(groups.len());
    for group in groups {
        let (kind, name) = name_of(group[0].0);
        reply.array(3);
        reply.bulk(word(*kind));
        reply.bulk(name);
        reply.array(group.len());
        for (_, card) in group {
            reply.array(4);
            reply.integer(card.id as i64);
            reply.bulk(card.address.as_bytes());
            reply.bulk(&card.name.lock());
            reply.bulk(card.user_name().as_bytes());
        }
    }
}

fn word(kind: SubscriptionKind) -> &'static [u8] {
    match kind {
        SubscriptionKind::Topic => b"topic",
        SubscriptionKind::Pattern => b"pattern",
        SubscriptionKind::Shard => b"shard",
        SubscriptionKind::Trace => b"",
    }
}

impl Gathering {
    /// False: there is more to go through.
    fn step(&mut self, core: &Core<'_>) -> bool {
        let mut budget = STEPS;
        loop {
            while let Some((name, receivers)) = self.left.pop() {
                let pattern = self.pattern.as_deref();
                let cost = OF_A_LOOK + pattern.map_or(0, |pattern| pattern.len() * name.len());
                if pattern.is_none_or(|pattern| glob::matches(pattern, &name)) {
                    self.total += u64::from(receivers);
                    self.first.push((KINDS[(self.part - 1) / STRIPES], name));
                    if self.first.len() > self.most {
                        self.first.pop();
                    }
                }
                match budget.checked_sub(cost) {
                    Some(rest) => budget = rest,
                    None => return false,
                }
            }
            if self.part == KINDS.len() * STRIPES {
                return true;
            }
            let (kind, stripe) = (KINDS[self.part / STRIPES], self.part % STRIPES);
            self.left = core.shared.directory.receivers(kind, stripe);
            self.part += 1;
        }
    }
}

const KINDS: [SubscriptionKind; 3] =
    [SubscriptionKind::Topic, SubscriptionKind::Pattern, SubscriptionKind::Shard];
/// Subscriptions told, unless a LIMIT says otherwise.
const USUAL: usize = 1_000;
/// The largest LIMIT: a worker looks them up in one go.
const MOST_TOLD: i64 = 10_000;
/// Bytes compared in one turn, at most, and one name more.
const STEPS: usize = 4 << 20;
/// The cost of a look at a name, as bytes compared.
const OF_A_LOOK: usize = 64;
/// Bytes of an answer: it is written in one go, and goes out as one.
const MOST_ANSWERED: usize = 32 << 20;
/// Lengths, line ends and the number of a client; the same and the kind of a name.
const OF_A_CLIENT: usize = 64;
const OF_A_NAME: usize = 40;
