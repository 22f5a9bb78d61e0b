//! Stores: what is published is kept, in files that people read, or in a spool until it is delivered.
//!
//! Nothing here knows a hub or a scheduler. But for `network`, which is a client of one, nothing knows a
//! socket or reads a clock: time is an argument, the disk is a trait.
//!
//! Imports point one way: a module imports only modules that stand above it in this table.
//!
//! | module | what it holds |
//! |---|---|
//! | `printable` | text from elsewhere as a log may have it |
//! | [`message`] | a message as it is stored, and its position in its topic |
//! | [`name`] | a topic as a safe name of a file, and back |
//! | [`calendar`] | dates and hours |
//! | [`template`] | path templates |
//! | [`error`] | errors that say what to do |
//! | [`disk`] | folders and files; the real disk, and one that fails as a seed says |
//! | `file` | the file store |
//! | [`spool`] | messages that wait to be delivered |
//! | `network` | the client that delivers them to another hub, or to a Redis |
//!
//! **What is promised.** A message whose commit returned under [`file::Fsync::Always`] survives any
//! crash, once, in the order of its topic; under the others it survives a crash of the process, and
//! a crash of the machine if a sync came in between. A repeated message of an origin is stored
//! once.

#[cfg(not(target_os = "linux"))]
compile_error!("the stores run on Linux only");

pub mod calendar;
pub mod disk;
pub mod error;
pub mod file;
pub mod message;
pub mod name;
pub mod network;
mod printable;
pub mod spool;
pub mod template;

pub use error::StoreError;
pub use message::{Message, Position, Stored};
pub use printable::printable;
pub use template::Template;

#[cfg(test)]
mod tests {
    fn number(name: &str, otherwise: u64) -> u64 {
        let Ok(text) = std::env::var(name) else { return otherwise };
        text.parse().unwrap_or_else(|_| panic!("{name}={text}; allowed: a whole number"))
    }

    /// The seed of what is left to chance.
    pub fn seed() -> u64 {
        number("INTERLOCK_SEED", 1)
    }

    /// Number of random trials: `INTERLOCK_STORES` multiplies it.
    pub fn share(count: u64) -> u64 {
        count * number("INTERLOCK_STORES", 1)
    }
}
