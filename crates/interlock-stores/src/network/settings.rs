//! The place where messages go, and how.

use std::fmt;
use std::time::Duration;

use crate::network::secure::Tls;

#[derive(Clone)]
pub struct Settings {
    /// `HOST:PORT`, or `unix:PATH`, with `@` before an abstract name.
    pub address: String,
    /// `None`: plain bytes.
    pub tls: Option<Tls>,
    /// `None`, with a password: the default user.
    pub user: Option<String>,
    pub password: Option<String>,
    pub protocol: Protocol,
    /// For a connection to be made, and for an upstream that does not move: neither takes bytes nor answers.
    pub timeout: Duration,
    /// The sender, for life: [`Spool::origin`](crate::spool::Spool::origin). A hub takes one connection of a
    /// sender at a time, and tells by it the ways apart that messages of one origin came.
    pub sender: u128,
}

/// The commands by which messages are given to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// A hub's RELAY: each message once, acknowledged when it is as safe as the hub makes it.
    #[default]
    Relay,
    /// PUBLISH: every subscriber gets it, at least once.
    Publish,
    /// XADD: a stream for each topic, with the fields `payload`, `time`, `origin` and `number`.
    Xadd,
}

impl Settings {
    pub fn new(address: &str, protocol: Protocol, sender: u128) -> Settings {
        let (tls, user, password) = Default::default();
        let address = address.into();
        Settings { address, tls, user, password, protocol, timeout: TIMEOUT, sender }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the password.
        let Settings { address, tls, user, protocol, timeout, .. } = self;
        let mut told = f.debug_struct("Settings");
        told.field("address", address).field("tls", &tls.is_some()).field("user", user);
        told.field("protocol", protocol).field("timeout", timeout).finish_non_exhaustive()
    }
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Relay => "relay",
            Protocol::Publish => "publish",
            Protocol::Xadd => "xadd",
        }
    }
}

const TIMEOUT: Duration = Duration::from_secs(10);
