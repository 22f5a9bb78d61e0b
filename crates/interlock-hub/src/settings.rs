//! What a hub is told at its start. Files, flags and their checks are Python's.

#[derive(Clone, Debug)]
pub struct Settings {
    pub host: String,
    /// 0: any free port. Without a host, TCP is not listened on.
    pub port: u16,
    /// Path of a unix socket; empty: none.
    pub unix: String,
    /// Descriptors of listening sockets to serve; with any, `host`, `port` and `unix` are not bound.
    pub inherited: Vec<i32>,
    /// 0: as many as there are cores, at most four.
    pub workers: usize,
    pub maxclients: usize,
    /// Connections from one address; 0: no limit.
    pub max_per_address: usize,
    /// Bytes of one unfinished request.
    pub query_limit: usize,
    /// The longest argument.
    pub frame_limit: u64,
    pub normal: OutputLimit,
    pub pubsub: OutputLimit,
    /// Seconds without a request after which a connection that subscribes to nothing is closed; 0: never.
    pub idle_timeout: u64,
}

/// What may be owed to one client, in bytes; 0 is no limit.
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
            unix: String::new(),
            inherited: Vec::new(),
            workers: 0,
            maxclients: 10_000,
            max_per_address: 0,
            query_limit: 64 << 20,
            frame_limit: 512 << 20,
            normal: OutputLimit::default(),
            pubsub: OutputLimit { soft: 8 << 20, soft_seconds: 60, hard: 32 << 20 },
            idle_timeout: 0,
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
