//! Settings of a connection to an upstream.

use std::fmt;
use std::time::Duration;

use crate::network::secure::Tls;

#[derive(Clone)]
pub struct Settings {
    /// `HOST:PORT`, or `unix:PATH`, with `@` before an abstract name.
    pub address: String,
    /// `None`: without TLS.
    pub tls: Option<Tls>,
    /// `None`: the default user, if there is a password.
    pub user: Option<String>,
    pub password: Option<String>,
    pub protocol: Protocol,
    /// Time limit for connecting, and for an upstream that neither reads bytes nor answers.
    pub timeout: Duration,
    /// Permanent id of the sender: [`Spool::origin`](crate::spool::Spool::origin). A hub accepts one connection
    /// per sender at a time. If messages of one origin arrive by several routes, it distinguishes the routes by
    /// their senders.
    pub sender: u128,
}

/// The commands that send messages to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// A hub's RELAY: each message once, acknowledged as the hub's own stores require.
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
