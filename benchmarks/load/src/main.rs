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
//! | `seconds` | 1 | how long is measured, behind `warm` |
//! | `warm` | 0.1 | seconds of the same load before that |
//! | `rate` | 10000 | messages a second |
//! | `spin` | 1 | in `closed` and `rate`: never sleep, so that no figure has wake-ups of this program in it |
//! | `connections` | 10000 | in `idle` |
//! | `owed` | 8000000 | in `paused`: bytes for the subscriber that does not read |

mod closed;
mod idle;
mod net;
mod options;
mod paused;
mod process;
mod publisher;
mod rate;
mod report;
mod subscriber;
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
        _ => Err(format!("no mode {mode:?}: closed, rate, idle or paused").into()),
    }
}
