//! Calls on the scheduler. Each uses several of its [parts](super::parts).
//!
//! | module | calls |
//! |---|---|
//! | `grant` | leasing one message |
//! | `settle` | settling, and what it makes ready |
//! | `batch`, `engine`, `read` | leases of many messages, and the other calls of an engine for several processes |
//! | `many` | many messages under one lock |
//! | `limits` | leasing where messages carry limit names or have groups |
//! | `coalesce` | puts that replace the payload of an earlier message |
//! | `runs` | leasing messages that follow one another together |
//! | `lease` | calls by the holder of a lease: ack, nack, reject, release, extend |
//! | `operate` | calls by an operator: cancel, revoke, retry, skip, bury, requeue, pause |
//! | `due` | applying what falls due |
//! | `behind` | what happens to messages behind a failure |
//! | `carry` | taking over the state of a replaced queue |
//! | `footprint` | memory: counted, and reduced when empty |
//! | `look_up` | questions that change nothing |
//! | `chain` | whether a message waits for others that never end |
//! | `explain` | why a message waits |
//! | `roots` | what holds messages up, and how many |

pub mod batch;
pub mod behind;
pub mod carry;
pub mod chain;
pub mod coalesce;
mod due;
pub(super) mod engine;
mod explain;
mod footprint;
mod grant;
pub mod lease;
mod limits;
mod look_up;
mod many;
pub mod operate;
pub mod read;
pub mod roots;
pub mod runs;
mod settle;
