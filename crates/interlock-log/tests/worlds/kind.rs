//! The kinds of worlds.

/// The faults that a world has beside those of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// All clients write one register.
    pub shared: bool,
    /// The engine's clock falls with its entries.
    pub falls: bool,
    /// The log is trimmed, and nodes give each other snapshots.
    pub trims: bool,
    /// Deadlines and the life of records are short; the log rests sometimes.
    pub short: bool,
    /// A ring keeps so many entries beyond its checkpoint.
    pub ring: usize,
    /// The most registers.
    pub capacity: u64,
    /// Some disks are lost.
    pub disks: bool,
    /// The ring does not survive its process.
    pub forgets: bool,
    /// The engine loses nothing.
    pub calm: bool,
    /// The most records of names and clients: more are refused until some are dropped.
    pub records: usize,
    /// Nodes ask for acknowledgements.
    pub acks: bool,
}

impl Kind {
    pub const PLAIN: Self = Self {
        shared: false,
        falls: true,
        trims: false,
        short: false,
        ring: 1_000_000,
        capacity: 1_000_000,
        disks: false,
        forgets: false,
        calm: false,
        records: 65_536,
        acks: false,
    };
}
