//! States: the laws of joining, forgotten tombstones, bytes from outside.
//!
//! INTERLOCK_OPS=N makes the histories N times as many.

mod centres;
mod hostile;
mod laws;
