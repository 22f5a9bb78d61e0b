//! The functions of the wire, as a client of an engine sees them.

mod bad_bytes;
mod coalescing;
mod dropping;
mod parking;
#[cfg(target_os = "linux")]
mod reclaiming;
mod recovering;
mod repeating;
mod replaying;
mod rules;
mod runs;
mod watching;

use interlock_engine::values::reply;
use interlock_engine::{Engine, EngineSettings, Function, Outcome, Served, Ticket};

/// An engine, a clock, and one queue.
pub struct Bench {
    pub engine: Engine,
    pub now: u64,
    pub served: Vec<Served>,
}

pub const START: u64 = 1_000_000_000_000_000;
pub const KEY: &[u8] = b"il:{q}";

impl Default for Bench {
    fn default() -> Self {
        Bench::with(EngineSettings::default())
    }
}

impl Bench {
    pub fn new() -> Self {
        Bench::default()
    }

    pub fn with(settings: EngineSettings) -> Self {
        Bench { engine: Engine::new(settings), now: START, served: Vec::new() }
    }

    /// A call that may be parked under a ticket: its reply's strings, the text of its refusal, or nothing.
    pub fn parks(
        &mut self,
        call: &str,
        ticket: Option<Ticket>,
    ) -> Option<Result<Vec<String>, String>> {
        let words: Vec<&str> =
            call.split(' ').map(|word| if word == "-" { "" } else { word }).collect();
        let function = Function::named(format!("il1_{}", words[0]).as_bytes()).expect("a function");
        let mut out = Vec::new();
        let args = &words[1..];
        let key = function.takes_queue().then_some(KEY);
        match self.engine.call(function, key, args, self.now, ticket, &mut out, &mut self.served) {
            Outcome::Done => Some(Ok(strings(&out).expect("no error"))),
            Outcome::Refused(refused) => {
                assert!(out.is_empty(), "a refused call appends nothing");
                Some(Err(refused.0))
            }
            Outcome::Parked => {
                assert!(out.is_empty(), "a parked call appends nothing");
                None
            }
        }
    }

    pub fn told(&mut self, call: &str) -> Result<Vec<String>, String> {
        self.parks(call, None).expect("nothing is parked without a ticket")
    }

    /// The strings of a reply that is not an error; `-` means an empty argument.
    pub fn call(&mut self, call: &str) -> Vec<String> {
        self.told(call).unwrap_or_else(|refused| panic!("{call}: {refused}"))
    }

    pub fn refused(&mut self, call: &str) -> String {
        self.told(call).expect_err(call)
    }

    /// Parks a call.
    pub fn park(&mut self, call: &str, ticket: Ticket) {
        assert_eq!(self.parks(call, Some(ticket)), None, "{call} is parked");
    }

    /// Advances the time, and applies what falls due where a call waits.
    pub fn tick(&mut self, by: u64) {
        self.now += by;
        while self.engine.next_due().is_some_and(|due| due <= self.now) {
            self.engine.tick(self.now, &mut self.served);
        }
    }

    /// Advances the time while the queue is left alone; then another one is called.
    pub fn rest(&mut self, by: u64) {
        self.now += by;
        let (mut out, none) = (Vec::new(), &[][..] as &[&str]);
        let other = Some(&b"il:{other}"[..]);
        self.engine.call(Function::Stats, other, none, self.now, None, &mut out, &mut self.served);
    }

    /// All that can be given back is, some at a call.
    pub fn settle(&mut self) {
        let mut before = u64::MAX;
        while self.engine.used() < before {
            before = self.engine.used();
            self.rest(0);
        }
    }

    /// Takes the answers given since this was last asked, each with its ticket.
    pub fn answers(&mut self) -> Vec<(Ticket, Result<Vec<String>, String>)> {
        self.served.drain(..).map(|served| (served.ticket, strings(&served.reply))).collect()
    }

    /// The tickets that were answered.
    pub fn woken(&mut self) -> Vec<Ticket> {
        self.answers().into_iter().map(|(ticket, _)| ticket).collect()
    }

    pub fn count(&mut self, name: &str) -> u64 {
        let stats = self.call("stats");
        let at = stats.iter().position(|one| one == name).expect(name);
        stats[at + 1].parse().expect("a number")
    }
}

pub fn strings(reply: &[u8]) -> Result<Vec<String>, String> {
    reply::parse(reply)
        .map(|all| all.into_iter().map(|one| String::from_utf8_lossy(one).into_owned()).collect())
}
