//! The keyed queues of a hub: one engine for all workers, and who is told when a call that waited is
//! answered.

use std::time::{SystemTime, UNIX_EPOCH};

use interlock_engine::{Args, Engine, Function, Outcome, Served, Settings, Ticket};

use crate::events::Answer;
use crate::reactor::mailbox::Mail;
use crate::registry::Time;
use crate::resp::parse::Arguments;
use crate::shared::Shared;

pub struct Queues {
    pub engine: Engine,
}

impl Queues {
    pub fn new(memory: u64) -> Self {
        Queues { engine: Engine::new(Settings { memory, ..Settings::default() }) }
    }

    /// How long a worker may sleep, ms; -1: nobody waits.
    pub fn timeout(&self) -> i32 {
        let Some(due) = self.engine.next_due() else { return -1 };
        // Rounded up, or it would wake a moment too early, again and again.
        i32::try_from(due.saturating_sub(time()).div_ceil(1000)).unwrap_or(i32::MAX)
    }

    /// Answers those whose wait is over. Any worker may; the others then find nothing to do.
    pub fn tick(&self, shared: &Shared, worker: usize) {
        let now = time();
        if self.engine.next_due().is_some_and(|due| due <= now) {
            let mut served = Vec::new();
            self.engine.tick(now, &mut served);
            tell(shared, worker, served);
        }
    }
}

/// Makes a call of a connection's; whom it serves beside is told.
pub fn call(
    shared: &Shared,
    worker: usize,
    token: u64,
    function: Function,
    arguments: Arguments<'_>,
    out: &mut Vec<u8>,
) -> Outcome {
    let (key, args) = match function.takes_queue() {
        true => (arguments.get(3), Behind { arguments, first: 4 }),
        false => (None, Behind { arguments, first: 3 }),
    };
    let mut served = Vec::new();
    let ticket = Some(ticket(worker, token));
    let engine = &shared.queues.engine;
    let outcome = engine.call(function, key, &args, time(), ticket, out, &mut served);
    tell(shared, worker, served);
    outcome
}

/// A ticket names the worker in bits that no slot reaches.
pub fn ticket(worker: usize, token: u64) -> Ticket {
    token | (worker as u64) << WORKER
}

fn tell(shared: &Shared, from: usize, served: Vec<Served>) {
    for Served { ticket, reply } in served {
        let worker = (ticket >> WORKER) as usize & MOST_WORKERS;
        let token = ticket & !((MOST_WORKERS as u64) << WORKER);
        let mail = Mail::Answer(token, Answer::Reply(reply));
        // Its own mailbox a worker looks into before it sleeps.
        if worker == from {
            let _ = shared.mailboxes[worker].put(mail);
        } else {
            shared.send(worker, mail);
        }
    }
}

/// µs since 1970.
fn time() -> Time {
    // A clock before 1970 is none; ids and tokens rise all the same.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as Time)
}

/// The arguments of a function, behind those of FCALL.
struct Behind<'a> {
    arguments: Arguments<'a>,
    first: usize,
}

impl Args for Behind<'_> {
    fn len(&self) -> usize {
        self.arguments.len() - self.first
    }

    fn get(&self, index: usize) -> &[u8] {
        self.arguments.get(self.first + index).expect("below len")
    }
}

/// Slots are numbers of 26 bits, workers of 6, and together they are half a token.
const WORKER: u32 = 26;
const MOST_WORKERS: usize = crate::settings::MOST_WORKERS - 1;
