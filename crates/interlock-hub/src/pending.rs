//! Calls that go on later: answered elsewhere, at their next turn, or after a pause.

use crate::topics::{Name, SubscriptionKind};
use crate::users::Users;

/// A call that is not answered yet, with what it needs to go on.
#[derive(Debug)]
pub enum Pending {
    Login(Login),
    /// CONFIG SET and the like; `closes`: the connection's end is the answer.
    Order {
        closes: bool,
    },
    /// A function that waits for something to answer.
    Queue,
    /// XREAD and the like: what a store keeps is read by another thread.
    Reading {
        topics: Vec<Box<[u8]>>,
    },
    /// Its next step.
    Listing(Listing),
    /// CLIENT PAUSE: the request is done when that ends.
    Pause,
    /// RELAY OPEN: the connection before has to end first.
    Relay,
    /// A store has no room for what it publishes: the request is done when it has.
    Room,
}

/// A password that the controller looks at, and what comes after it.
#[derive(Debug)]
pub struct Login {
    pub user: Vec<u8>,
    pub password: Vec<u8>,
    pub by: LoginCommand,
    /// The users when it was asked: the answer is about them.
    pub users: Users,
}

/// The command that a client logs in by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginCommand {
    Auth,
    /// With the protocol it wants.
    Hello {
        resp3: bool,
    },
}

/// A list of topics under way: through all there are, some of them a turn.
#[derive(Debug)]
pub struct Listing {
    pub kind: SubscriptionKind,
    pub pattern: Option<Box<[u8]>>,
    /// The next part of the directory.
    pub stripe: usize,
    /// Of the one before, what was not yet compared.
    pub left: Vec<Name>,
    pub found: Vec<Name>,
    /// Bytes that the answer has, about.
    pub size: usize,
}
