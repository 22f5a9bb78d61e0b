//! The rows of a table as a machine that a log drives.
//!
//! | module | what it holds |
//! |---|---|
//! | `slots` | places of rows that can be copied at once |
//! | `store` | the states of all rows: counts, expiry, what is forgotten, checksum, changes |
//! | `settings` | what a log's genesis says of its table |
//! | `calls` | the commands that write, by their names |
//! | `table` | a table: commands in, replies out |
//! | `drive` | the same as the machine that a log drives |
//! | `far` | rows of other data centres: taken in, and brought back after a loss |

mod calls;
mod drive;
mod far;
mod settings;
mod slots;
mod store;
mod table;

pub use far::Writers;
pub use settings::Settings;
pub use store::{Changed, Comparison, Difference, Held, Image, Store, Unshown, MAX_KEY};
pub use table::{Rows, When};
