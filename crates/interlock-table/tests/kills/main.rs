//! Writers that are killed or stopped in the midst of their work, while readers and other writers
//! continue.
//!
//! The children are this program once more. Every row says by itself whether it is whole: a stamp, and
//! words that follow from key and stamp. Each child writes down, in memory that it shares with its parent,
//! what it began and what it has ended.
//!
//! | variable | meaning |
//! |---|---|
//! | `INTERLOCK_SEED` | the seed; without it a new one each run, printed |
//! | `INTERLOCK_KILLS` | how many random kills and as many random stops, 60 if not told |

#[path = "../common/mod.rs"]
mod common;

mod child;
mod random;
mod resizes;
mod rows;
mod steps;
