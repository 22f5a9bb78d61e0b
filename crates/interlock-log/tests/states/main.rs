//! States: the laws of joining, forgotten tombstones, bytes from outside.
//!
//! INTERLOCK_STATES=N runs N times as many histories.

mod centres;
mod hostile;
mod laws;
mod layouts;
mod raises;
