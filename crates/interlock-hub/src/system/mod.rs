//! The process and its machine: clocks, memory, signals, wake-ups.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | [`time`] | the clock for intervals |
//! | `boot_time` | the clock of queues, which continues across a restart of the hub |
//! | [`memory`] | memory of this process, as the kernel counts it |
//! | [`wake`] | a descriptor to sleep on |
//! | `signals` | keeps signals away from the hub's threads |

pub(super) mod boot_time;
pub mod memory;
pub(super) mod signals;
pub mod time;
pub mod wake;
