//! Counters, statistics and traces of the hub.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | [`counters`] | counts since the start |
//! | [`statistics`] | calls, failures, and current rates |
//! | [`tracing`] | the slow log and the lines of MONITOR |
//! | [`heartbeat`] | whether the workers are alive |

pub mod counters;
pub mod heartbeat;
pub mod statistics;
pub mod tracing;
