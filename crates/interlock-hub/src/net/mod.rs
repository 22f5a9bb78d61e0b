//! Sockets, TLS and epoll.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | `socket` | system calls on a socket |
//! | [`tls`] | encryption between a socket and its session |
//! | `listener`, `inherited`, `listeners` | listening sockets that were bound here, or passed to the process |
//! | `acceptor` | the thread that accepts connections and distributes them |
//! | [`reactor`] | the workers: epoll, reading, sending |

pub(super) mod acceptor;
mod inherited;
mod listener;
pub(super) mod listeners;
pub mod reactor;
mod socket;
pub mod tls;
