//! Calls that wait, and leases that the engine renews for busy holders.

pub mod renewals;
pub(super) mod waiters;
