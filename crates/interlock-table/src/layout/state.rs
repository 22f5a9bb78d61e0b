//! The word that says what a slot is: version 47 bits, owner 12, kind 4, live 1.
//!
//! It is the only lock of a slot, and the only word that a reader has to compare. Taking the lock
//! leaves version and liveness as they are, so that a reader beside a writer of one word, or beside
//! one that has stopped, continues; leaving it raises the version. Versions never fall, so that a
//! compare-and-swap from a word that was seen means that nothing happened in between.

const LIVE: u64 = 1;
const KIND_AT: u32 = 1;
const OWNER_AT: u32 = 5;
const VERSION_AT: u32 = 17;
const KINDS: u64 = 0b1111;

/// The highest number of a participant; 0 is nobody.
pub const OWNERS: u64 = (1 << (VERSION_AT - OWNER_AT)) - 1;

/// The reason why a slot is locked. It says what is to be done if the owner dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Not locked.
    Open = 0,
    /// One word changes, at once: nothing is to be done.
    Word = 1,
    /// The row is that in the owner's scratch row: it is to be copied in place.
    Row = 2,
    /// Like `Row`, for a process that finishes a dead owner's write: in the scratch row for that.
    Redo = 3,
    /// A slot that was free is held for a new row. Insert locks are held so too.
    Claim = 4,
    /// The row is being copied to a slot of a later row: the copy is to be dropped.
    Moving = 5,
    /// The copy is whole: it is to be published, and this one freed.
    Moved = 6,
    /// The slot can no longer be written, because the table is being resized. It has no owner: the table's
    /// [resize word](crate::table::resize) says for whom it waits.
    Frozen = 7,
    /// The row is gone, but still counted: the slot is to be freed, or to get another row.
    Over = 8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State(pub u64);

impl State {
    #[inline]
    pub fn is_live(self) -> bool {
        self.0 & LIVE != 0
    }

    /// The participant that holds the lock; 0 if none does.
    #[inline]
    pub fn owner(self) -> u64 {
        self.0 >> OWNER_AT & OWNERS
    }

    #[inline]
    pub fn is_open(self) -> bool {
        self.0 & ((1 << VERSION_AT) - 1) & !LIVE == 0
    }

    #[inline]
    pub fn version(self) -> u64 {
        self.0 >> VERSION_AT
    }

    #[inline]
    pub fn is(self, kind: Kind) -> bool {
        self.0 >> KIND_AT & KINDS == kind as u64
    }

    /// Returns whether the row is in a scratch row of the owner, and not in its place.
    #[inline]
    pub fn has_image(self) -> bool {
        self.is(Kind::Row) || self.is(Kind::Redo)
    }

    /// Returns whether what was read in place under `self` is whole, if the state is `now` behind it.
    #[inline]
    pub fn still(self, now: State) -> bool {
        let changed = self.0 ^ now.0;
        changed >> VERSION_AT == 0 && changed & LIVE == 0 && !now.has_image()
    }

    /// The word as this owner holds it.
    #[inline]
    pub fn held(self, owner: u64, kind: Kind) -> State {
        let kept = self.0 >> VERSION_AT << VERSION_AT | self.0 & LIVE;
        State(kept | owner << OWNER_AT | (kind as u64) << KIND_AT)
    }

    /// The word as this owner holds it while the row is missing.
    #[inline]
    pub fn claimed(self, owner: u64) -> State {
        let kind = if self.is_live() { Kind::Over } else { Kind::Claim };
        State(self.held(owner, kind).0 & !LIVE)
    }

    /// Returns whether the slot is held and has no row.
    #[inline]
    pub fn is_claimed(self) -> bool {
        self.is(Kind::Claim) || self.is(Kind::Over)
    }

    /// The word while the table is being resized.
    #[inline]
    pub fn frozen(self) -> State {
        self.held(0, Kind::Frozen)
    }

    /// Returns whether a slot holds what it held: both words are of one version, and a change that was
    /// under way at the one has not ended at the other.
    #[inline]
    pub fn is_same(self, now: State) -> bool {
        self.version() == now.version() && self.is_live() == now.is_live()
    }

    /// The word behind a change: the next version, which nobody holds.
    #[inline]
    pub fn next(self, live: bool) -> State {
        State((self.version() + 1) << VERSION_AT | u64::from(live))
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.0 >> KIND_AT & KINDS;
        let live = if self.is_live() { "live" } else { "free" };
        write!(f, "{live} version {} owner {} kind {kind}", self.version(), self.owner())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use crate::layout::state::*;

    #[test]
    fn a_lock_keeps_version_and_liveness_and_its_end_raises_the_version() {
        let row = State(0).next(true);
        assert!(row.is_live() && row.is_open() && row.version() == 1);
        let held = row.held(OWNERS, Kind::Word);
        assert!(held.is_live() && held.owner() == OWNERS && held.version() == 1);
        assert!(row.still(held) && row.still(row));
        let frozen = row.frozen();
        assert!(
            !frozen.is_open() && frozen.owner() == 0 && row.still(frozen) && row.is_same(frozen)
        );
        assert!(!row.still(row.held(3, Kind::Row)) && !row.still(row.held(3, Kind::Redo)));
        assert!(!row.still(row.claimed(3)) && !row.still(held.next(true)));
        assert!(row.claimed(3).is(Kind::Over) && !row.claimed(3).is_live());
        assert!(State(0).claimed(3).is(Kind::Claim) && State(0).claimed(3).is_claimed());
        assert_eq!(held.next(false), State(2 << VERSION_AT));
        assert!(row.held(3, Kind::Moved).held(4, Kind::Redo).is(Kind::Redo));
    }
}
