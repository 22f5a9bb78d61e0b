//! The executor: worker threads, futures, and handlers that wait for each other.

pub(super) mod blocked;
pub(super) mod future;
mod future_methods;
pub(super) mod work;
