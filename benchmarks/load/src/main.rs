//! Loads a server that speaks the Redis protocol, checks what it delivers, measures what it costs:
//! `interlock-load MODE port=N pid=N [NAME=VALUE ...]`.
//!
//! One thread with an epoll, for the server has the other core; prints one line of JSON.
//!
//! | mode | module | what it does |
//! |---|---|---|
//! | `closed` | `closed` | publishes as fast as replies, or deliveries, come back; 0 or more subscribers |
//! | `rate` | `rate` | publishes at a fixed rate, and measures from when a message was due to its delivery |
//! | `idle` | `idle` | opens connections, then gives each a topic: resident bytes of either |
//! | `paused` | `paused` | one subscriber of 64 topics reads nothing: resident bytes, then all it was owed |
//! | `queue-SIDE` | `queue::closed` | each client puts a batch, settles the one before and leases the next, in one write |
//! | `handled-SIDE` | `queue::handled` | puts at a fixed rate, and measures from when a message was due until a consumer has it |
//! | `levels-SIDE` | `queue::levels` | as `queue-SIDE` with more and more pending, then all is taken |
//!
//! SIDE is `interlock` (its wire, of a hub or of Redis with the library), `streams` or `lists` of Redis.
//!
//! | option | default | what it is |
//! |---|---|---|
//! | `port` | – | where the server listens on 127.0.0.1 |
//! | `pid` | – | the server's process, for its CPU time and its memory |
//! | `core` | any | the core this program runs on |
//! | `publishers` | 1 | connections that publish |
//! | `subscribers` | 0 | connections that are subscribed |
//! | `pipeline` | 1 | requests sent at once; the next follow when all are answered |
//! | `window` | 0 | messages not yet with every subscriber, at most; 0: any number |
//! | `patterns` | 0 | patterns of one subscriber; each publish has a topic of its own, which one of them matches |
//! | `ends` | 0 | topics have the literal bytes of the patterns at their end (1), not at their start |
//! | `seconds` | 1 | how long is measured, behind `warm` |
//! | `warm` | 0.1 | seconds of the same load before that |
//! | `rate` | 10000 | messages a second |
//! | `spin` | 1 | in `closed` and `rate`: never sleep, so that no figure has wake-ups of this program in it |
//! | `connections` | 10000 | in `idle` |
//! | `owed` | 8000000 | in `paused`: bytes for the subscriber that does not read |
//! | `clients` | 8 | of a queue: connections; in `handled-SIDE`, those that consume |
//! | `batch` | 1 | messages of a put and of a lease |
//! | `keys` | 100000 | different keys in all; a message's follow from its number |
//! | `each` | 2 | keys of a message |
//! | `payload` | 64 | bytes |
//! | `wait` | 0 | µs for which a lease may wait for messages |
//! | `numbered` | 1 | calls have numbers, so that the server keeps the last reply of each consumer |
//! | `durable` | 0 | a queue of `interlock` is declared to be on the disk once a second (1), or before the answer (2) |
//! | `backlog` | 0 | messages put before, which stay pending; in `levels-SIDE`, the highest level |

mod closed;
mod connection;
mod idle;
mod net;
mod options;
mod paused;
mod process;
mod publisher;
mod queue;
mod rate;
mod report;
mod resp;
mod subscriber;
mod took;
mod wire;

use std::error::Error;
use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    match run() {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("interlock-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<String, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mode = arguments.next().unwrap_or_default();
    let options = Options::parse(arguments)?;
    if let Some(core) = options.core {
        net::stay_on(core)?;
    }
    match mode.as_str() {
        "closed" => closed::run(&options),
        "rate" => rate::run(&options),
        "idle" => idle::run(&options),
        "paused" => paused::run(&options),
        _ => mode
            .split_once('-')
            .and_then(|(task, side)| queue::run(task, side, &options))
            .unwrap_or_else(|| {
                Err(format!("no mode {mode:?}; benchmarks/load/src/main.rs names them").into())
            }),
    }
}
