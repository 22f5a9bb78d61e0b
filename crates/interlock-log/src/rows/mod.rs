//! The rows of a table as a machine that a log drives.
//!
//! | module | contents |
//! |---|---|
//! | `slots` | places of rows that can be copied at once |
//! | `store` | the states of all rows: counts, expiry, forgotten keys, checksum, changes |
//! | `settings` | the table's settings in a log's genesis |
//! | `calls` | lookup of the commands that write, by name |
//! | `table` | a table: commands in, replies out |
//! | `view` | a row as a command sees it |
//! | `drive` | the table as the machine that a log drives |
//! | `missed` | deletes that found no row |
//! | `far` | rows of other data centres: joining them, and bringing them back after a loss |

mod calls;
mod drive;
mod far;
mod missed;
mod settings;
mod slots;
mod store;
mod table;
mod view;

pub use far::Writers;
pub use settings::Settings;
pub use store::{Changed, Comparison, Difference, Held, Image, Store, Unshown, MAX_KEY};
pub use table::{Rows, When};
