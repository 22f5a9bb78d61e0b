//! The queue's asyncio API: waiters of an event loop, and native coroutines.

pub(super) mod aio;
pub(super) mod call;
pub(super) mod coroutine;
