//! Topics: subscriptions, and messages on their way to subscribers.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | [`directory`] | subscriptions: counts for all workers, connections for each |
//! | [`chunk`] | messages that one worker published in one turn |
//! | [`survey`] | a question to all workers: who is subscribed |
//! | [`relays`] | senders that bring messages of other hubs, and which messages have come before |

pub mod chunk;
pub mod directory;
pub mod relays;
pub mod survey;
