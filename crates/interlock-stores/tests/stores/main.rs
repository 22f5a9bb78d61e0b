//! The stores against crashes, bad disks and bad names.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed of the first life; without it a fixed one |
//! | `INTERLOCK_STORES` | how many times as many random lives; 1 |
//! | `INTERLOCK_KILLS` | kills of a process on the real disk; 10 |
//!
//! | module | what it holds |
//! |---|---|
//! | `model` | what a store should hold, kept naively |
//! | `lives` | a file store on a bad disk, through many crashes |
//! | `files` | begun, named, compressed, removed, kept open, and read beside it all |
//! | `damage` | files that something changed |
//! | `missing` | files that are missing, by every way and for every reader |
//! | `beside` | readers beside a store, one operation on the disk after the other |
//! | `stalled` | readers that stop for a while, and changes to the files meanwhile |
//! | `kills` | a process that is killed, on the real disk |
//! | `spooled` | the spool |
//! | `everyday` | what a user of the file store sees |

mod beside;
mod damage;
mod everyday;
mod files;
mod kills;
mod lives;
mod missing;
mod model;
mod spooled;
mod stalled;

fn number(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    text.parse().unwrap_or_else(|_| panic!("{name}={text}; allowed: a whole number"))
}

fn seed() -> u64 {
    number("INTERLOCK_SEED", 1)
}

/// Number of random trials.
fn share(count: u64) -> u64 {
    count * number("INTERLOCK_STORES", 1)
}
