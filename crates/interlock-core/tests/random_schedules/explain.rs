//! The model's answers to "why" (clause 17): one message, or a key.

use interlock_core::queue::schedules::trace::Call;
use interlock_core::queue::types::{Blocker, Explained, Hot, Node, State};

use crate::model::{Hold, Message, Model, Phase};

impl Model {
    /// Answers `Call::Explain` and `Call::ExplainKey`, as of now.
    ///
    /// The holders that a waiting barrier names are the queue's own choice. With `chosen`, the
    /// explanation takes them from there (an answer to the same call), so that everything else can
    /// be compared.
    pub fn explain(&self, call: &Call, chosen: Option<&Explained>) -> Option<Explained> {
        let (roots, limit): (Vec<&Message>, usize) = match call {
            Call::Explain { id, limit } => {
                (self.unsettled().filter(|message| message.id == *id).collect(), *limit)
            }
            Call::ExplainKey { key, limit } => {
                let key = self.names.iter().position(|name| name == key);
                (key.map_or(Vec::new(), |key| self.shown_on(key)), *limit)
            }
            _ => panic!("{call:?} asks for no explanation"),
        };
        // What was asked for is always told.
        let limit = limit.max(1);
        if roots.is_empty() {
            return None;
        }
        let mut ids: Vec<u64> = roots.iter().map(|message| message.id).collect();
        let mut nodes: Vec<Node> = Vec::new();
        let mut truncated = ids.len() > limit;
        ids.truncate(limit);
        // `ids` grows while it is walked: breadth first, each message once.
        while let Some(&id) = ids.get(nodes.len()) {
            let mut node = self.node(id, chosen);
            node.limits.iter_mut().for_each(|full| full.holders.truncate(limit));
            node.blocked.iter_mut().for_each(|blocker| blocker.holders.truncate(limit));
            node.parked.iter_mut().for_each(|parked| parked.behind.truncate(limit));
            let full = node.limits.iter().flat_map(|full| &full.holders);
            let stuck = node.parked.iter().flat_map(|parked| &parked.behind);
            let blockers = node.blocked.iter().flat_map(|blocker| &blocker.holders);
            for holder in full.chain(stuck).chain(blockers) {
                if ids.contains(holder) {
                    continue;
                }
                if ids.len() < limit {
                    ids.push(*holder);
                } else {
                    truncated = true;
                }
            }
            nodes.push(node);
        }
        Some(Explained { nodes, truncated })
    }

    fn node(&self, id: u64, chosen: Option<&Explained>) -> Node {
        let message = self.unsettled().find(|message| message.id == id).expect("an unsettled id");
        let at = self.placed.iter().position(|message| message.id == id);
        let left = |until: u64| until.saturating_sub(self.now);
        let mut node = Node {
            id,
            state: State::Ready,
            attempt: message.attempt,
            age: self.now - message.put_at,
            consumer: 0,
            held_for: None,
            lease_left: None,
            due_in: None,
            paused: Vec::new(),
            turn: None,
            limits: Vec::new(),
            parked: None,
            blocked: Vec::new(),
        };
        match message.phase {
            Phase::Delayed { due } => {
                node.state = State::Delayed;
                node.due_in = Some(left(due));
            }
            Phase::BackingOff { due } => {
                node.state = State::BackingOff;
                node.due_in = Some(left(due));
            }
            Phase::Held => node.state = State::Held,
            Phase::Parked => {
                node.state = State::Parked;
                node.parked = Some(self.parked_under(message));
            }
            Phase::Leased { since, deadline, .. } => {
                node.state = State::Leased;
                node.held_for = Some(self.now - since);
                node.lease_left = deadline.map(left);
            }
            Phase::Queued => {
                let at = at.expect("what is queued has a place");
                if !self.ready(at) {
                    node.state = State::Waiting;
                }
                node.paused = self.pauses(message);
                if self.in_front(at) {
                    node.limits = self.full_names(message);
                }
                node.turn = self.turn_of(at);
                node.blocked = self.blocked(at, chosen);
            }
        }
        node
    }

    fn pauses(&self, message: &Message) -> Vec<Vec<u8>> {
        let queue = self.paused.then(Vec::new);
        let paused = message.holds.iter().filter(|hold| self.paused_keys.contains(&hold.key));
        queue.into_iter().chain(paused.map(|hold| self.names[hold.key].clone())).collect()
    }

    /// One entry a key on which it is not in front, after one for the barriers before it.
    fn blocked(&self, at: usize, chosen: Option<&Explained>) -> Vec<Blocker> {
        let message = &self.placed[at];
        let before = &self.placed[..at];
        let mut blocked = Vec::new();
        if message.barrier {
            if !before.is_empty() {
                let holders = chosen
                    .and_then(|chosen| self.chosen_holders(message.id, chosen))
                    .unwrap_or_else(|| self.all_holders(at));
                blocked.push(Blocker { key: None, holders, ahead: at as u64, exact: true });
            }
            return blocked;
        }
        let barriers: Vec<&Message> = before.iter().filter(|message| message.barrier).collect();
        if let Some(first) = barriers.first() {
            blocked.push(Blocker {
                key: None,
                holders: vec![first.id],
                ahead: barriers.len() as u64,
                exact: true,
            });
        }
        for hold in &message.holds {
            let lane = self.lane(hold.key);
            let front = front(&lane, hold.key);
            let ahead = lane.iter().position(|other| other.id == message.id).expect("its lane");
            if ahead >= front {
                blocked.push(Blocker {
                    key: Some(self.names[hold.key].clone()),
                    holders: lane[..front].iter().map(|holder| holder.id).collect(),
                    ahead: ahead as u64,
                    exact: true,
                });
            }
        }
        blocked
    }

    /// Those of which an explanation of a key begins.
    fn shown_on(&self, key: usize) -> Vec<&Message> {
        let lane = self.lane(key);
        match lane.is_empty() {
            true => self.first_under(key).into_iter().collect(),
            false => lane,
        }
    }

    /// The unsettled messages of one key, in order.
    fn lane(&self, key: usize) -> Vec<&Message> {
        self.placed.iter().filter(|message| hold_of(message, key).is_some()).collect()
    }

    /// Everything before a barrier, the leased first.
    fn all_holders(&self, at: usize) -> Vec<u64> {
        let is_leased = |message: &&Message| matches!(message.phase, Phase::Leased { .. });
        let (leased, others): (Vec<_>, Vec<_>) = self.placed[..at].iter().partition(is_leased);
        leased.into_iter().chain(others).map(|message| message.id).collect()
    }

    /// Returns the messages that the given explanation names as the holders of a waiting barrier,
    /// if it may: some of the messages before it, each once, the leased first.
    fn chosen_holders(&self, barrier: u64, chosen: &Explained) -> Option<Vec<u64>> {
        let node = chosen.nodes.iter().find(|node| node.id == barrier)?;
        let [Blocker { key: None, holders, .. }] = node.blocked.as_slice() else {
            return None;
        };
        let at = self.placed.iter().position(|message| message.id == barrier)?;
        let leased = |id: &u64| {
            let before = self.placed[..at].iter().find(|message| message.id == *id);
            before.map(|message| matches!(message.phase, Phase::Leased { .. }))
        };
        let known: Vec<bool> = holders.iter().map(leased).collect::<Option<_>>()?;
        let leased_first = known.windows(2).all(|pair| pair[0] || !pair[1]);
        let some_leased = self.all_holders(at).first().and_then(leased)?;
        let once = (1..holders.len()).all(|at| !holders[..at].contains(&holders[at]));
        let allowed =
            leased_first && once && known.first().is_some_and(|first| *first == some_leased);
        allowed.then(|| holders.clone())
    }

    /// Clause 17's neighbour: the deepest lanes, ties by the key's bytes.
    pub(crate) fn hot_keys(&self, limit: usize) -> Vec<Hot> {
        let depths = self
            .names
            .iter()
            .enumerate()
            .map(|(key, name)| Hot { key: name.clone(), depth: self.lane(key).len() as u64 });
        let mut hot: Vec<Hot> = depths.filter(|hot| hot.depth > 0).collect();
        hot.sort_by(|one, other| other.depth.cmp(&one.depth).then_with(|| one.key.cmp(&other.key)));
        hot.truncate(limit);
        hot
    }
}

fn hold_of(message: &Message, key: usize) -> Option<&Hold> {
    message.holds.iter().find(|hold| hold.key == key)
}

/// Counts the messages that lead the lane with nothing on this key before them to wait for: one
/// exclusive, or the leading run of shared.
fn front(lane: &[&Message], key: usize) -> usize {
    let shared = |message: &&&Message| hold_of(message, key).is_some_and(|hold| !hold.exclusive);
    lane.iter().take_while(shared).count().max(1)
}
