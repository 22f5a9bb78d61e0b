//! Waiting callers, and the choice of those to wake.
//!
//! | module | responsibility |
//! |---|---|
//! | `room` | puts that wait for room |
//! | `waiters` | waiters, parked and called |
//! | `close` | the end of waiting at a shutdown |

mod close;
pub mod room;
pub mod waiters;
