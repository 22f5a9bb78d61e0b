//! The structs that hold the scheduler's state. Their fields are private to their files.
//!
//! | module | state |
//! |---|---|
//! | `slab`, `index`, `timers`, `lazy` | storage: records by number, a sorted index, times that fall due, parts that most queues lack |
//! | `records` | the unsettled messages |
//! | `leases`, `batches` | current leases |
//! | `lane`, `barrier` | which message is in front of which |
//! | `ready`, `pauses` | messages that can be leased, and messages set aside |
//! | `gate` | concurrency limits and rates, and messages that wait for room in one |
//! | `groups` | fair groups and their turns |
//! | `delays` | messages that wait for their time |
//! | `parked` | keys that are shut, and messages parked under them |
//! | `numbers` | ids and sequences, and their times |
//! | `counts` | counts of messages and events |
//! | `dedup`, `dead` | dedup strings and dead letters |
//! | `feed`, `watch` | events for observers, and notes for the log of slow waits |

pub(super) mod barrier;
pub(super) mod batches;
pub(super) mod counts;
pub mod dead;
pub(super) mod dedup;
pub(super) mod delays;
pub mod feed;
pub(super) mod gate;
pub(super) mod groups;
pub(super) mod index;
pub(super) mod lane;
pub(super) mod lazy;
pub(super) mod leases;
pub(super) mod numbers;
pub(super) mod parked;
pub(super) mod pauses;
pub(super) mod ready;
pub(super) mod records;
pub(super) mod slab;
pub(super) mod timers;
pub mod watch;
