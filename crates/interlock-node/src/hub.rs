//! The clients of a hub as clients of its node. The hub's workers hand over many writes at once;
//! the loop takes them, and answers them in the order of the log.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use interlock_hub::system::wake::WakeUp;
use interlock_hub::tables::writes::{
    Answers, RowWrites, Waiting, Words, Write as Given, MOST_NAME,
};
use interlock_log::apply::Answer;
use interlock_log::entry::MOST_ARGUMENTS;

use crate::events::Events;
use crate::node::{Clients, News, Refused, Unacknowledged, Write};

/// Writes on their way from a hub's workers to the loop of its node.
pub struct HubWrites {
    queue: Mutex<Queue>,
    wake: WakeUp,
    /// Maximum bytes waiting here.
    most: usize,
}

#[derive(Default)]
struct Queue {
    writes: VecDeque<Given>,
    bytes: usize,
    /// Number of writes that the loop has taken and not answered.
    taken: usize,
    has_ended: bool,
}

impl HubWrites {
    /// `most`: maximum bytes that wait for the loop; more writes are refused.
    pub fn new(most: usize) -> io::Result<Arc<HubWrites>> {
        let (queue, wake) = (Mutex::default(), WakeUp::new()?);
        Ok(Arc::new(HubWrites { queue, wake, most }))
    }

    /// Stops taking writes: those that wait and all later ones are refused.
    pub fn end(&self) {
        let mut queue = self.lock();
        queue.has_ended = true;
        queue.bytes = 0;
        let writes = std::mem::take(&mut queue.writes);
        drop(queue);
        refuse(writes, ENDED);
    }

    fn take(&self, most: usize) -> Vec<Given> {
        let mut queue = self.lock();
        let mut count = queue.writes.len().min(most);
        // A group is taken as a whole.
        while count > 0 && count < queue.writes.len() && queue.writes[count - 1].goes_on {
            count += 1;
        }
        let taken: Vec<Given> = queue.writes.drain(..count).collect();
        queue.bytes -= taken.iter().map(size).sum::<usize>();
        queue.taken += taken.len();
        if queue.writes.is_empty() {
            // Under the lock, so that a later write wakes the loop again.
            self.wake.silence();
        }
        taken
    }

    /// The number of writes that wait for their replies.
    pub fn waiting(&self) -> usize {
        let queue = self.lock();
        queue.writes.len() + queue.taken
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RowWrites for HubWrites {
    fn write(&self, writes: Vec<Given>) {
        let bytes: usize = writes.iter().map(size).sum();
        let mut queue = self.lock();
        let is_over = queue.bytes + bytes > self.most && !queue.writes.is_empty();
        if queue.has_ended || is_over {
            let why = if queue.has_ended { ENDED } else { NO_ROOM };
            drop(queue);
            return refuse(writes, why);
        }
        let is_first = queue.writes.is_empty();
        queue.bytes += bytes;
        queue.writes.extend(writes);
        drop(queue);
        if is_first {
            self.wake.wake();
        }
    }
}

/// A waiting client, and whether it numbers its writes.
type Waits = (Waiting, bool);

/// The loop's side of a hub's writes.
pub struct HubClients {
    writes: Arc<HubWrites>,
    events: Arc<Events>,
    /// Waiting clients, by tickets from `first` on; `None`: already answered.
    waiting: VecDeque<Option<Waits>>,
    first: u64,
}

impl HubClients {
    /// `events`: receives the node's news.
    pub fn new(writes: Arc<HubWrites>, events: Arc<Events>) -> HubClients {
        HubClients { writes, events, waiting: VecDeque::new(), first: 0 }
    }

    fn waits(&mut self, ticket: u64) -> Option<Waits> {
        let at = usize::try_from(ticket.checked_sub(self.first)?).ok()?;
        let found = self.waiting.get_mut(at)?.take();
        while self.waiting.front().is_some_and(Option::is_none) {
            self.waiting.pop_front();
            self.first += 1;
        }
        found
    }
}

impl Clients for HubClients {
    fn descriptor(&self) -> RawFd {
        self.writes.wake.descriptor()
    }

    fn waiting(&self) -> usize {
        self.writes.lock().writes.len()
    }

    fn take(&mut self, most: usize) -> Vec<Write> {
        let given = self.writes.take(most);
        let mut taken = Vec::with_capacity(given.len());
        for Given { waiting, client, arguments, goes_on } in given {
            let ticket = self.first + self.waiting.len() as u64;
            self.waiting.push_back(Some((waiting, client.is_some())));
            let deadline = client.as_ref().map(|client| client.deadline);
            let client = client.map(|client| (client.name, client.number));
            let acks = acks(&arguments);
            taken.push(Write { ticket, client, deadline, acks, arguments, goes_on });
        }
        taken
    }

    fn answer(&mut self, answers: Vec<(u64, Answer)>) {
        let (mut out, mut count) = (Answers::default(), 0);
        for (ticket, answer) in answers {
            if let Some((waiting, numbered)) = self.waits(ticket) {
                count += 1;
                let reply = reply(answer, numbered, waiting.resp3());
                out.add(waiting, reply);
            }
        }
        self.writes.lock().taken -= count;
    }

    fn refuse(&mut self, writes: Vec<Write>, why: Refused) {
        let text = match why {
            Refused::Drains => "TRYAGAIN the node drains: ask another; it was not done".into(),
            Refused::CannotNow => {
                "TRYAGAIN the node cannot append to its log: it was not done".into()
            }
            Refused::Behind => {
                "TRYAGAIN readers of the node do not see all of its log yet: it was not done".into()
            }
            Refused::TooFar => {
                "TOOFAR the deadline is too far ahead of TABLE TIME; allowed: 60,000 ms".into()
            }
            Refused::TooMany => format!(
                "ERR it has more than {MOST_ARGUMENTS} arguments, which an entry of a log may not have: it \
                 was not done"
            ),
            Refused::TooLong { bytes, most, setting } => format!(
                "ERR it takes {bytes} bytes in an entry of the log; allowed: {most}, by {setting}: it was \
                 not done"
            ),
        };
        let (mut out, mut count) = (Answers::default(), 0);
        for write in writes {
            if let Some((waiting, _)) = self.waits(write.ticket) {
                count += 1;
                out.add(waiting, error(&text));
            }
        }
        self.writes.lock().taken -= count;
    }

    fn lack(&mut self, ticket: u64, why: Unacknowledged) {
        let text = match why {
            Unacknowledged::InTime { wanted, have } => format!(
                "NOACK it was done, and {have} of {wanted} other machines have acknowledged it in time"
            ),
            Unacknowledged::Lost => "NOACK it was done, and the engine has lost entries before enough machines have \
                                     acknowledged it; the node puts it back"
                .to_owned(),
            Unacknowledged::Ends => {
                "NOACK it was done, and the node ends before enough machines have acknowledged it"
                    .to_owned()
            }
        };
        if let Some((waiting, _)) = self.waits(ticket) {
            self.writes.lock().taken -= 1;
            waiting.answer(error(&text));
        }
    }

    fn tell(&mut self, news: News) {
        self.events.tell(news);
    }
}

fn refuse(writes: impl IntoIterator<Item = Given>, text: &str) {
    let mut out = Answers::default();
    for Given { waiting, .. } in writes {
        out.add(waiting, error(text));
    }
}

/// `numbered`: an error states the outcome of all calls with this number, not only of this one.
fn reply(answer: Answer, numbered: bool, resp3: bool) -> Vec<u8> {
    match answer {
        // All other replies to writes are the same in RESP2 and RESP3, so a reply kept for a client
        // that asks again suits both.
        Answer::Done { reply: Some(reply), .. } if resp3 && reply == b"$-1\r\n" => {
            b"_\r\n".to_vec()
        }
        Answer::Done { reply: Some(reply), .. } => reply,
        Answer::Done { reply: None, .. } => {
            error("NOREPLY it was done, and its reply is no longer kept")
        }
        Answer::Late => {
            error("LATE a write with a higher number was done: this one was not, and will not be")
        }
        Answer::Past if numbered => {
            error("PAST its deadline is over in the log: it was not done by then")
        }
        Answer::Past => error("TRYAGAIN it came into the log too late: it was not done"),
        Answer::Full => error("TRYAGAIN the log has as many clients as it may: it was not done"),
        Answer::Unknown => {
            error("UNANSWERED the node has not read it in the log: it may have been done")
        }
    }
}

/// Returns the number of machines that a call waits for if it specifies that itself. TABLE TIME,
/// and TABLE BARRIER without ACKS, change nothing that other machines could lack.
fn acks(arguments: &Words) -> Option<usize> {
    if !arguments.iter().next().is_some_and(|word| word.eq_ignore_ascii_case(b"table")) {
        return None;
    }
    let words: Vec<&[u8]> = arguments.iter().take(5).collect();
    let is = |at: usize, name: &[u8]| words[at].eq_ignore_ascii_case(name);
    if words.len() < 3 || !(is(1, b"barrier") || is(1, b"time")) {
        return None;
    }
    let count = words.get(4).filter(|_| is(3, b"acks"));
    let count = count.and_then(|count| std::str::from_utf8(count).ok()?.parse().ok());
    Some(count.unwrap_or(0))
}

fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

fn size(write: &Given) -> usize {
    OF_A_WRITE + write.arguments.bytes().len() + write.arguments.len() * OF_AN_ARGUMENT
}

const ENDED: &str = "TRYAGAIN the node that writes this table has ended: it was not done";
const NO_ROOM: &str =
    "TRYAGAIN the node has more writes to do than it has room for: it was not done";
// A name that a hub accepts fits into an entry.
const _: () = assert!(MOST_NAME <= interlock_log::entry::MOST_NAME);
/// Overhead in bytes of a write and of an argument.
const OF_A_WRITE: usize = 96;
const OF_AN_ARGUMENT: usize = 40;
