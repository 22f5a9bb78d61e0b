//! Kinds of worlds.

/// Faults of a world in addition to those of all worlds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// All clients write one register.
    pub shared: bool,
    /// The engine's clock falls with its entries.
    pub falls: bool,
    /// The log is trimmed, and nodes give each other snapshots.
    pub trims: bool,
    /// Deadlines and the life of records are short; the log is idle at times.
    pub short: bool,
    /// Clients send a write whose deadline is over again, under its number with a later one.
    pub postpones: bool,
    /// Number of entries that a ring keeps beyond its checkpoint.
    pub ring: usize,
    /// Largest number of registers.
    pub capacity: u64,
    /// Some disks are lost.
    pub disks: bool,
    /// The ring does not survive its process.
    pub forgets: bool,
    /// The engine loses nothing.
    pub calm: bool,
    /// Largest number of records of names and clients: further ones are refused until some are
    /// dropped.
    pub records: usize,
    /// Nodes ask for acknowledgements.
    pub acks: bool,
    /// Clients send many writes at once that change nothing.
    pub bursts: bool,
}

impl Kind {
    pub const PLAIN: Self = Self {
        shared: false,
        falls: true,
        trims: false,
        short: false,
        postpones: false,
        ring: 1_000_000,
        capacity: 1_000_000,
        disks: false,
        forgets: false,
        calm: false,
        records: 65_536,
        acks: false,
        bursts: false,
    };
}
