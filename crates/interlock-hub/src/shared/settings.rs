//! A hub's settings: those fixed at its start, and those that may change while it runs. Python owns
//! files, flags and their checks.

use std::path::PathBuf;
use std::sync::Arc;

use interlock_core::clock::Clock;
use interlock_engine::Durability;
use rustls::ServerConfig;

use crate::access::users::Users;
use crate::stores::StoreSettings;
use crate::tables::served::Tables;

#[derive(Clone, Debug)]
pub struct Settings {
    pub host: String,
    /// 0: any free port. Without a host, TCP is not listened on.
    pub port: u16,
    /// True if TLS is spoken at `port`.
    pub port_speaks_tls: bool,
    /// A second port, which speaks TLS. 0: any free one.
    pub tls_port: Option<u16>,
    /// Path of a unix socket; empty: none.
    pub unix: String,
    /// Its permissions; `None`: what the umask leaves.
    pub unix_mode: Option<u32>,
    /// Descriptors of listening sockets to serve; with any, `host`, `port` and `unix` are not bound.
    pub inherited: Vec<i32>,
    /// 0: as many as there are cores, at most four.
    pub workers: usize,
    /// Topics and patterns are put into lower case wherever a client names one. Those of users and stores
    /// are so already.
    pub ignore_case_topics: bool,
    /// The folder of the journal; `None`: no queue is durable.
    pub journal: Option<PathBuf>,
    /// Durability of queues that declare none, if there is a journal.
    pub durability: Durability,
    /// True to set aside what of the journal cannot be read; otherwise the hub does not start.
    pub repair: bool,
    /// The time of the queues; tests move it by hand.
    pub clock: Clock,
    /// Someone takes the server's events and answers what it asks. Without, it does not ask.
    pub controlled: bool,
    /// The initial stores.
    pub stores: Vec<StoreSettings>,
    pub live: Live,
}

/// The settings that may change while the hub runs: all of them at once, or nothing.
#[derive(Clone, Debug)]
pub struct Live {
    pub maxclients: usize,
    /// Connections from one address; 0: no limit.
    pub max_per_address: usize,
    /// Bytes of one unfinished request.
    pub query_limit: usize,
    /// The longest argument.
    pub frame_limit: u64,
    pub normal: OutputLimit,
    pub pubsub: OutputLimit,
    /// Bytes of the subscriptions of one client; 0: no limit.
    pub subscriptions: usize,
    /// Bytes that all clients together may make the hub keep; 0: no limit.
    pub clients_memory: usize,
    /// Seconds without a request after which a connection that subscribes to nothing is closed; 0: never.
    pub idle_timeout: u64,
    /// Seconds in which a client must have said who it is, where that is asked; 0: no limit.
    pub login_timeout: u64,
    pub slow_log: SlowLog,
    /// Lines of one kind logged in a while; 0: all.
    pub log_repeats: u64,
    /// Bytes of all queues; 0: no limit.
    pub queues_memory: u64,
    pub users: Users,
    pub tables: Tables,
    /// Certificates and keys, for the ports that speak TLS.
    pub tls: Option<Arc<ServerConfig>>,
    /// The names and values of the configuration that CONFIG GET shows, as Python words them.
    pub shown: Vec<(String, String)>,
}

/// The bounds of the slow log: which commands are kept in it.
#[derive(Clone, Copy, Debug)]
pub struct SlowLog {
    /// µs from which a command is slow; `None`: nothing is.
    pub threshold: Option<u64>,
    /// The number of commands that are kept, the newest of them.
    pub length: usize,
}

/// The limit of what may be owed to one client, in bytes; 0 is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputLimit {
    /// May be exceeded for `soft_seconds`.
    pub soft: usize,
    pub soft_seconds: u64,
    pub hard: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            host: "127.0.0.1".into(),
            port: 6399,
            port_speaks_tls: false,
            tls_port: None,
            unix: String::new(),
            unix_mode: None,
            inherited: Vec::new(),
            workers: 0,
            ignore_case_topics: false,
            journal: None,
            durability: Durability::Always,
            repair: false,
            clock: Clock::System,
            controlled: false,
            stores: Vec::new(),
            live: Live::default(),
        }
    }
}

impl Default for Live {
    fn default() -> Self {
        Live {
            maxclients: 10_000,
            max_per_address: 0,
            query_limit: 64 << 20,
            frame_limit: 512 << 20,
            normal: OutputLimit { soft: 0, soft_seconds: 0, hard: 256 << 20 },
            pubsub: OutputLimit { soft: 8 << 20, soft_seconds: 60, hard: 32 << 20 },
            subscriptions: 64 << 20,
            clients_memory: 2 << 30,
            idle_timeout: 0,
            login_timeout: 60,
            slow_log: SlowLog { threshold: Some(10_000), length: 128 },
            log_repeats: 10,
            queues_memory: 0,
            users: Users::default(),
            tables: Tables::default(),
            tls: None,
            shown: Vec::new(),
        }
    }
}

impl Settings {
    pub fn workers(&self) -> usize {
        let wanted = match self.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(4),
            wanted => wanted,
        };
        wanted.min(MOST_WORKERS)
    }
}

/// A set of workers is a word with a bit for each.
pub const MOST_WORKERS: usize = 64;
