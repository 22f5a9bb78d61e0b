//! States: the laws of joining, forgotten tombstones, bytes from outside.
//!
//! INTERLOCK_STATES=N makes the histories N times as many.

mod centres;
mod hostile;
mod laws;
mod layouts;
mod raises;
