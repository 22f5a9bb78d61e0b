//! Suspended calls: answered elsewhere, at their next turn, or after a pause.

use std::collections::BinaryHeap;
use std::sync::Arc;

use crate::access::users::{User, Users};
use crate::tables::keeper::Keeper;
use crate::topics::directory::{Name, SubscriptionKind};
use crate::topics::survey::Survey;

/// An unanswered call, with the state to continue it.
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
    /// A call of NODE, by its number.
    Kept {
        keeper: Arc<Keeper>,
        number: u64,
    },
    /// Its next step.
    Listing(Listing),
    /// Its next step.
    Gathering(Gathering),
    /// The workers report who is subscribed.
    Survey(Arc<Survey>),
    /// CLIENT PAUSE: the request is done when that ends.
    Pause,
    /// RELAY OPEN: the connection before has to end first.
    Relay,
    /// The request is done when the writes before it are answered: all of them, or so many that there is room
    /// for another.
    Writes {
        all: bool,
    },
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
    /// User that asked: it sees only topics that it has a right to.
    pub user: Option<Arc<User>>,
    pub pattern: Option<Box<[u8]>>,
    /// The next part of the directory.
    pub stripe: usize,
    /// Names of the previous batch that are not compared yet.
    pub left: Vec<Name>,
    pub found: Vec<Name>,
    /// Bytes that the answer has, about.
    pub size: usize,
}

/// PUBSUB CLIENTS under way: through all names there are, some of them a turn.
#[derive(Debug)]
pub struct Gathering {
    pub pattern: Option<Box<[u8]>>,
    /// Names to keep, and subscriptions to tell.
    pub most: usize,
    /// The next part of the directory: of topics, then of patterns, then of shard topics.
    pub part: usize,
    /// Names of the previous batch that are not compared yet, with their numbers of receivers.
    pub left: Vec<(Name, u32)>,
    /// The first by order, the last of them on top.
    pub first: BinaryHeap<(SubscriptionKind, Name)>,
    /// Subscriptions that match.
    pub total: u64,
}
