//! Topics: subscriptions, and messages on their way to subscribers.
//!
//! A module imports only modules above it in this table.
//!
//! | module | responsibility |
//! |---|---|
//! | [`patterns`] | patterns by the literal bytes that a topic must have to match them |
//! | [`directory`] | subscriptions: counts for all workers, connections for each |
//! | [`chunk`] | messages that one worker published in one turn |
//! | [`survey`] | a question to all workers: who is subscribed |
//! | [`relays`] | senders that bring messages of other hubs, and which messages have come before |

pub mod chunk;
pub mod directory;
pub mod patterns;
pub mod relays;
pub mod survey;
