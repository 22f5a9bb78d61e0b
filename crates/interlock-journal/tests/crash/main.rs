//! The journal against crashes: of the machine on a simulated disk, and of the process on the real one.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed of the first life; without it a fixed one |
//! | `INTERLOCK_LIVES` | lives of a journal on the simulated disk; 2,000 |
//! | `INTERLOCK_KILLS` | kills of a process on the real disk; 40 |
//!
//! | module | what it holds |
//! |---|---|
//! | `queues` | queues that only collect their records, to be compared |
//! | `lives` | a journal on a bad disk, through many crashes |
//! | `copies` | copies made while it is written to |
//! | `forget` | records that are forgotten, or read while others are written |
//! | `every_byte` | the last records cut and changed at every byte |
//! | `refusals` | what is not opened, and what is set aside |
//! | `room` | a full disk, and a failing one |
//! | `closed` | what is known of a journal that was closed |
//! | `kills` | a process that is killed, on the real disk |

mod closed;
mod copies;
mod every_byte;
mod forget;
mod kills;
mod lives;
mod queues;
mod refusals;
mod room;

fn number(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{name}={text}; allowed: a whole number"))
}
