//! The function with which every node applies an entry to its state (rule 1).
//!
//! Its result depends only on the state and the entry. So nodes that have read the same log are
//! equal, and each of them knows the replies.

mod joined;

use std::collections::BTreeMap;

use crate::codec::{put_bytes, put_number, Damaged, Reader};
use crate::entry::{Body, Command, Done, Entry, Mark, PutBack, MOST_BYTES, MOST_NAME};
use crate::heard::Heard;
use crate::keepers::Keepers;
use crate::machine::{Limits, Machine, Moment, Outcome, Rules, AHEAD};
use crate::session::{Recent, Sessions, Standing, MOST_REPLY};
use crate::stamp::{hybrid, BELIEVED_MS, COUNTER_BITS, LATEST_MS};

/// Distance between the stamps of two commands. It leaves room for late put-backs and for values
/// stamped just above others, so that a stamp identifies the write.
const STEP: u64 = 16;

/// Answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was done, now or earlier. The reply of an earlier one may no longer be kept.
    Done { reply: Option<Vec<u8>>, refused: bool },
    /// It was not done and never will be: a later command of its client was done.
    Late,
    /// It was not done and never will be: its deadline has passed in the log.
    Past,
    /// It was not done: the log has reached its limit of clients.
    Full,
    /// This node cannot know whether it was done.
    Unknown,
}

/// Outcome of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It was the next entry of its name.
    Counted,
    /// It was counted before; some writes of a put-back may still have been missing.
    Repeat,
    /// The entry before it is missing.
    Gap,
    /// The limit of names is reached.
    Full,
    /// It was a genesis, a state, an acknowledgement or a report of checkpoints.
    Taken,
    /// It came before the genesis or was a second genesis, or it cannot be read.
    Void,
}

/// Effects of applying an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub fate: Fate,
    /// Answers with the index of each command in its entry, sorted; empty if nobody wants them.
    pub answers: Vec<(u64, Answer)>,
    /// The part that the ring must keep.
    pub kept: Option<PutBack>,
    /// It joined a history of this data centre that had writes which this one lacked.
    pub joined: bool,
}

/// The result of all entries of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole<M> {
    pub genesis: Vec<u8>,
    /// The log time, in ms.
    pub now: u64,
    /// Time during which the log was in use, in ms: the log time without idle periods.
    pub busy: u64,
    /// The highest stamp.
    pub reading: u64,
    /// Set by the genesis and by each history joined since.
    pub lineage: u64,
    /// Number of rows in which two histories of this data centre were merged, each of which had
    /// writes that the other lacked: an older write may have won, and sums may be wrong. Also
    /// counts rows of which others have sums of this data centre that its entries do not add up to,
    /// or may already have counted what was added.
    pub merged: u64,
    pub sessions: Sessions,
    /// Histories of other data centres from which rows have come.
    pub sources: BTreeMap<Vec<u8>, Heard>,
    /// The nodes and the checkpoints that they keep.
    pub keepers: Keepers,
    /// `None` before the genesis.
    pub machine: Option<M>,
    swept: u64,
}

impl<M> Default for Whole<M> {
    fn default() -> Self {
        Self {
            genesis: Vec::new(),
            now: 0,
            busy: 0,
            reading: 0,
            lineage: 0,
            merged: 0,
            sessions: Sessions::default(),
            sources: BTreeMap::new(),
            keepers: Keepers::default(),
            machine: None,
            swept: 0,
        }
    }
}

impl Applied {
    fn new(fate: Fate) -> Applied {
        Applied { fate, answers: Vec::new(), kept: None, joined: false }
    }

    /// Takes the answer to the command with this index.
    pub fn take_answer(&mut self, index: u64) -> Option<Answer> {
        // Most entries have all their answers.
        let at = match self.answers.get(index as usize) {
            Some((known, _)) if *known == index => index as usize,
            _ => self.answers.binary_search_by_key(&index, |(index, _)| *index).ok()?,
        };
        Some(std::mem::replace(&mut self.answers[at].1, Answer::Unknown))
    }
}

/// A command to be done.
struct Call<'a> {
    command: &'a Command,
    stamp: u64,
    /// The writer that did it first, if its entry was lost.
    put_back: Option<u64>,
    /// Earliest log time at which it can have been sent, in ms.
    sent: u64,
    /// Its entry is the first of its name.
    is_first: bool,
    /// Its client waits for the answer.
    is_wanted: bool,
    /// Latest deadline that an earlier command of its client can have, unless log time has fallen.
    latest: u64,
}

impl<M: Machine> Whole<M> {
    /// Builds a state of rows only, for others to join.
    pub fn of(genesis: Vec<u8>, machine: M) -> Self {
        Self { genesis, machine: Some(machine), ..Self::default() }
    }

    /// Applies the entry at a place of the log, with the engine's time for it, and takes its
    /// commands. `is_wanted`: a client waits for the answers.
    pub fn apply(
        &mut self,
        entry: &mut Entry,
        at: Mark,
        time: u64,
        is_wanted: bool,
        limits: &Limits,
        rules: Rules,
    ) -> Applied {
        let commands = match &mut entry.body {
            Body::Commands(commands) | Body::Asking(commands) => std::mem::take(commands),
            _ => Vec::new(),
        };
        let entry = &*entry;
        self.pass(entry, time, limits, rules);
        if let Body::Genesis(genesis) = &entry.body {
            let fate = self.begin(genesis);
            if let (Fate::Taken, true, Some(machine)) = (fate, entry.seen == 0, &mut self.machine) {
                machine.is_bare(self.now);
            }
            if fate == Fate::Taken {
                self.lineage = at.checksum | 1;
            }
            return Applied::new(fate);
        }
        if self.machine.is_none() {
            return Applied::new(Fate::Void);
        }
        match &entry.body {
            Body::Genesis(_) => Applied::new(Fate::Void),
            Body::State { source, bytes } => {
                let joined = self.join(source.as_ref(), bytes, at, rules);
                let fate = joined.as_ref().map_or(Fate::Void, |_| Fate::Taken);
                Applied { joined: joined == Ok(true), ..Applied::new(fate) }
            }
            Body::Keeps { node, machine, report } => {
                self.keepers.take(node, machine, *report, entry.read.position);
                Applied::new(Fate::Taken)
            }
            // It does not change the state: replicas evaluate it.
            Body::Acks { .. } => Applied::new(Fate::Taken),
            Body::Commands(_) | Body::Asking(_) => {
                // A command whose deadline is too far ahead is not done: once its record was
                // dropped, all writes up to that deadline would be refused.
                let furthest = self.furthest(limits);
                let deadlines = commands.iter().map(|command| command.deadline);
                let latest = deadlines.filter(|deadline| *deadline <= furthest).max();
                match self.count(entry, latest.unwrap_or(0), None, limits, rules) {
                    Fate::Counted => self.do_all(entry, commands, is_wanted, limits, rules),
                    fate => Applied::new(fate),
                }
            }
            Body::PutBack(lost) => {
                let takes_back = |machine: &M| machine.takes_back(lost.writer);
                let is_judged = rules.takes_back && !lost.done.is_empty();
                if is_judged && !self.machine.as_ref().is_some_and(takes_back) {
                    return Applied::new(Fate::Void);
                }
                let latest = lost.done.iter().map(|done| done.command.deadline).max();
                match self.count(entry, latest.unwrap_or(0), Some(lost), limits, rules) {
                    Fate::Gap => Applied::new(Fate::Gap),
                    Fate::Full => Applied::new(Fate::Full),
                    fate => self.put_back(entry, lost, fate, is_wanted, limits, rules),
                }
            }
        }
    }

    /// Advances the log time to an entry.
    fn pass(&mut self, entry: &Entry, time: u64, limits: &Limits, rules: Rules) {
        let before = self.now;
        let credible = rules.seen && entry.seen <= time.saturating_add(limits.ahead);
        self.now = self.now.max(time).max(if credible { entry.seen } else { 0 });
        if before > 0 {
            self.busy += (self.now - before).min(limits.pause);
        }
        // A lost entry was applied at most one span later than in this history.
        let keep =
            if rules.records { limits.timeout + 2 * limits.span } else { limits.timeout / 4 };
        if self.busy >= self.swept + keep / 8 {
            self.swept = self.busy;
            self.sessions.drop_unused(self.busy.saturating_sub(keep));
        }
        if let Some(machine) = &mut self.machine {
            machine.advance(self.now);
        }
    }

    fn begin(&mut self, genesis: &[u8]) -> Fate {
        if self.machine.is_some() {
            return Fate::Void;
        }
        let Ok(machine) = M::begin(genesis) else { return Fate::Void };
        self.machine = Some(machine);
        self.genesis = genesis.to_vec();
        Fate::Taken
    }

    /// Rule 2: counts an entry that is the next of its name, or one that is missing since a later
    /// one was put back.
    fn count(
        &mut self,
        entry: &Entry,
        latest: u64,
        lost: Option<&PutBack>,
        limits: &Limits,
        rules: Rules,
    ) -> Fate {
        let last = self.sessions.last(&entry.name);
        let counts = entry.number == last + 1
            || (lost.is_some_and(|lost| lost.leaps) && entry.number > last)
            || self.sessions.is_missing(&entry.name, entry.number);
        if rules.numbers && !counts {
            return if entry.number > last { Fate::Gap } else { Fate::Repeat };
        }
        // A put-back is not refused for lack of room.
        let has_room = lost.is_some() && rules.room;
        if last == 0 && self.sessions.names.len() >= limits.names && !has_room {
            return Fate::Full;
        }
        self.sessions.count(&entry.name, entry.number, self.busy, latest);
        Fate::Counted
    }

    fn next_stamp(&mut self) -> u64 {
        let next = self.reading / STEP * STEP + STEP;
        self.reading = next.max(hybrid(self.now));
        self.reading
    }

    fn do_all(
        &mut self,
        entry: &Entry,
        commands: Vec<Command>,
        is_wanted: bool,
        limits: &Limits,
        rules: Rules,
    ) -> Applied {
        let mut kept = PutBack { time: self.now, busy: self.busy, ..PutBack::default() };
        let mut stamps = Vec::with_capacity(commands.len());
        let (mut applied, mut reply) = (Applied::new(Fate::Counted), Vec::new());
        applied.answers.reserve_exact(if is_wanted { commands.len() } else { 0 });
        for (index, command) in (0u64..).zip(&commands) {
            let mut done_at = None;
            if let (0, Some(machine)) = (index as usize % AHEAD, &mut self.machine) {
                machine.look_ahead(&commands[index as usize..]);
            }
            let answer = match self.refusal(command, limits, rules) {
                Some(answer) => answer,
                None => {
                    let stamp = self.next_stamp();
                    let latest =
                        command.deadline.max(if rules.latest { self.furthest(limits) } else { 0 });
                    let sent = command.deadline.saturating_sub(limits.timeout);
                    let (put_back, is_first) = (None, entry.number == 1);
                    let call = Call { command, stamp, put_back, sent, is_first, is_wanted, latest };
                    let (answer, has_changed) = self.perform(&call, &mut reply, rules);
                    if has_changed {
                        done_at = Some(stamp);
                    }
                    answer
                }
            };
            stamps.push(done_at);
            if command.client.is_none() && !is_done(&answer) && rules.denied {
                self.sessions.deny(&entry.name, entry.number, index);
                kept.denied.push(index);
            }
            if is_wanted {
                applied.answers.push((index, answer));
            }
        }
        kept.done.reserve_exact(stamps.iter().flatten().count());
        let done = (0..).zip(commands).zip(stamps);
        let done = done
            .filter_map(|((index, command), stamp)| Some(Done { index, stamp: stamp?, command }));
        kept.done.extend(done);
        if let Some(machine) = &mut self.machine {
            kept.writer = machine.writer();
            self.merged += machine.take_short();
        }
        applied.kept = Some(kept);
        applied
    }

    /// Returns the answer to a command that must not be done now.
    fn refusal(&self, command: &Command, limits: &Limits, rules: Rules) -> Option<Answer> {
        if let Some((client, number)) = command.client.as_ref().filter(|_| rules.clients) {
            match self.sessions.standing(client, *number) {
                Standing::Done => return Some(self.answer_again(client, *number)),
                // Its record may have been dropped, and a later command may have started a new one.
                Standing::Late if self.is_forgotten(command, rules) => {
                    return Some(Answer::Unknown);
                }
                Standing::Late => return Some(Answer::Late),
                Standing::New => {}
            }
        }
        if self.is_forgotten(command, rules) {
            return Some(Answer::Unknown); // it may have been done
        }
        if rules.deadlines && command.deadline < self.now {
            return Some(Answer::Past);
        }
        if rules.deadlines && command.deadline > self.furthest(limits) {
            return Some(Answer::Unknown); // a copy may arrive when its deadline is near enough
        }
        let (client, _) = command.client.as_ref()?;
        let clients = &self.sessions.clients;
        (clients.len() >= limits.clients && !clients.contains_key(&**client))
            .then_some(Answer::Full)
    }

    /// The latest accepted deadline: a later one could outlive the record of its client.
    fn furthest(&self, limits: &Limits) -> u64 {
        self.now + limits.timeout + limits.span
    }

    /// Returns whether the record of a write may have been dropped.
    fn is_forgotten(&self, command: &Command, rules: Rules) -> bool {
        rules.forgets && command.deadline <= self.sessions.forgotten
    }

    /// Returns the answer to a write that was done before.
    pub fn answer_again(&self, client: &[u8], number: u64) -> Answer {
        let record = self.sessions.clients.get(client);
        match record.and_then(|record| record.recent(number)) {
            Some(recent) => Answer::Done { reply: recent.reply.clone(), refused: recent.refused },
            None => Answer::Done { reply: None, refused: false },
        }
    }

    /// Executes a command. Returns the answer, and whether the command is put back after a loss.
    /// `reply` is a buffer to reuse.
    fn perform(&mut self, call: &Call<'_>, reply: &mut Vec<u8>, rules: Rules) -> (Answer, bool) {
        let Call { command, stamp, put_back, sent, is_first, is_wanted, latest } = *call;
        let client = command.client.as_ref();
        let record = client.and_then(|(name, _)| self.sessions.clients.get(&**name));
        let is_first = if client.is_some() { record.is_none() } else { is_first };
        let moment = Moment {
            time: self.now,
            stamp,
            lineage: self.lineage,
            put_back: put_back.is_some() && rules.room,
            writer: put_back,
            sent: Some(sent).filter(|_| is_first && put_back.is_none()),
            late: put_back.is_some() && rules.late,
            missed: put_back.is_some() && rules.missed,
            lost: put_back.is_some(),
            number: client.map_or(0, |(_, number)| *number),
            client: record,
            own_order: rules.own_order,
            placed: Vec::new().into(),
        };
        let Some(machine) = &mut self.machine else {
            return (Answer::Unknown, false);
        };
        reply.clear();
        let outcome = machine.apply(&command.arguments.list(), &moment, reply);
        let refused = outcome == Outcome::Refused;
        // A command that changed something before may find later values now.
        let is_missed = outcome == Outcome::Missed && rules.missed;
        let changed = is_missed || outcome == Outcome::Done;
        // What has come back is done with, even if it is refused now.
        let is_void = put_back.is_none() && (refused || !changed);
        let mut stamps = moment.placed.into_inner();
        if let Some((name, number)) = client {
            if stamps.is_empty() {
                stamps.push(stamp);
            }
            for stamp in stamps {
                let reply = Some(&*reply).filter(|reply| reply.len() <= MOST_REPLY).cloned();
                let recent = Recent { number: *number, stamp, refused: is_void, reply };
                self.sessions.mark(name, self.busy, recent, latest);
            }
        }
        (Answer::Done { reply: is_wanted.then(|| reply.clone()), refused }, !is_void)
    }

    /// Rule 4: does the commands that a lost entry did and this history has not done.
    fn put_back(
        &mut self,
        entry: &Entry,
        lost: &PutBack,
        fate: Fate,
        is_wanted: bool,
        limits: &Limits,
        rules: Rules,
    ) -> Applied {
        let furthest = self.furthest(limits);
        if let Some(machine) = self.machine.as_mut().filter(|_| !lost.done.is_empty()) {
            machine.comes_back(lost.writer);
        }
        // A repeat does not renew the record of its name.
        let busy = if fate == Fate::Counted { self.busy } else { lost.busy.min(self.busy) };
        let mut kept = PutBack { time: self.now, busy, writer: lost.writer, ..PutBack::default() };
        if fate == Fate::Counted && rules.denied {
            for index in &lost.denied {
                self.sessions.deny(&entry.name, entry.number, *index);
            }
            kept.denied.clone_from(&lost.denied);
        }
        let (mut applied, mut reply) = (Applied::new(fate), Vec::new());
        for done in &lost.done {
            let index = done.index;
            if self.is_forgotten(&done.command, rules) {
                continue;
            }
            if let Some((client, number)) = &done.command.client {
                // If it was refused here, it was done in the other history and has an answer there.
                if rules.clients && self.sessions.has_done(client, *number) {
                    if is_wanted {
                        applied.answers.push((index, self.answer_again(client, *number)));
                    }
                    continue;
                }
            } else if fate != Fate::Counted
                && !self.sessions.was_denied(&entry.name, entry.number, index)
            {
                continue; // it was done with its entry
            }
            let mut stamp = self.next_stamp();
            if rules.first_date {
                stamp = done.stamp;
                self.reading = self.reading.max(stamp);
                let client = done.command.client.as_ref();
                let next = client.and_then(|(name, n)| self.sessions.stamp_below_later(name, *n));
                stamp = stamp.min(next.unwrap_or(stamp));
            }
            let latest = done.command.deadline.max(if rules.latest { furthest } else { 0 });
            let put_back = Some(lost.writer);
            let (command, sent, is_first) = (&done.command, 0, false);
            let call = Call { command, stamp, put_back, sent, is_first, is_wanted, latest };
            let (answer, has_changed) = self.perform(&call, &mut reply, rules);
            if has_changed {
                self.sessions.undeny(&entry.name, entry.number, index);
                kept.done.push(Done { index, stamp, command: done.command.clone() });
            }
            if is_wanted {
                applied.answers.push((index, answer));
            }
        }
        let worth = fate == Fate::Counted || !kept.done.is_empty();
        applied.kept = Some(kept).filter(|_| worth);
        applied
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        self.encode_head(out);
        encode_machine(
            self.machine.as_ref().map(|machine| |to: &mut Vec<u8>| machine.encode(to)),
            out,
        );
    }

    /// Returns a snapshot of what `encode` would write now, for another thread to write while this
    /// state changes.
    pub fn image(&self) -> impl FnOnce(&mut Vec<u8>) + Send + 'static {
        let mut head = Vec::new();
        self.encode_head(&mut head);
        let image = self.machine.as_ref().map(M::image);
        move |out| {
            out.extend_from_slice(&head);
            encode_machine(image, out);
        }
    }

    /// Returns whether a state from others leaves room for the readings of later writes.
    pub(crate) fn is_believed(&self) -> bool {
        self.latest_ms() <= BELIEVED_MS
    }

    /// Returns the latest of its times and readings, in ms.
    fn latest_ms(&self) -> u64 {
        let newest = self.machine.as_ref().map_or(0, M::newest);
        let reading = self.reading.max(newest) >> COUNTER_BITS;
        self.now.max(self.busy).max(self.swept).max(reading)
    }

    fn encode_head(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.genesis);
        for number in [self.now, self.busy, self.reading, self.lineage, self.merged, self.swept] {
            put_number(out, number);
        }
        self.sessions.encode(out);
        put_number(out, self.sources.len() as u64);
        for (name, heard) in &self.sources {
            put_bytes(out, name);
            heard.encode(out);
        }
        self.keepers.encode(out);
    }

    /// # Errors
    ///
    /// The bytes are not a state.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let genesis = reader.bytes(MOST_BYTES)?.to_vec();
        let mut whole = Self { genesis, ..Self::default() };
        whole.now = reader.number()?;
        whole.busy = reader.number()?;
        whole.reading = reader.number()?;
        whole.lineage = reader.number()?;
        whole.merged = reader.number()?;
        whole.swept = reader.number()?;
        whole.sessions = Sessions::decode(reader)?;
        for _ in 0..reader.count(13)? {
            let name = reader.bytes(MOST_NAME)?.to_vec();
            whole.sources.insert(name, Heard::decode(reader)?);
        }
        whole.keepers = Keepers::decode(reader)?;
        let begun = reader.byte()?;
        // The size of a table is unlimited.
        let bytes = reader.bytes(usize::MAX)?;
        if begun == 1 {
            whole.machine = Some(M::decode(bytes)?);
        }
        if whole.latest_ms() > LATEST_MS {
            return Err(Damaged);
        }
        Ok(whole)
    }
}

fn encode_machine(encode: Option<impl FnOnce(&mut Vec<u8>)>, out: &mut Vec<u8>) {
    out.push(u8::from(encode.is_some()));
    let mut bytes = Vec::new();
    if let Some(encode) = encode {
        encode(&mut bytes);
    }
    put_bytes(out, &bytes);
}

fn is_done(answer: &Answer) -> bool {
    matches!(answer, Answer::Done { refused: false, .. })
}
