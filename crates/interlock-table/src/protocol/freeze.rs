//! The resize word, and freezing the slots of a table while its rows are moved to another memory.
//!
//! | resize word | meaning |
//! |---|---|
//! | live, open | this is the table |
//! | live, held | as before, and the participant that holds it resizes it |
//! | live, frozen | as before; who resized it is gone, and rows may be frozen still |
//! | not live | another memory is the table; of this one nothing changes any more |
//! | 0 | not even that can be read here any more |
//!
//! A resize freezes each row, and the right to insert, by a compare-and-swap from the unlocked
//! word, as any lock: so writers look at nothing that they do not look at anyway, and readers
//! continue. A frozen word has no owner. A writer that finds one asks the resize word. A word is
//! thawed, or frozen anew for another resize, with the next version, so that a late thaw changes
//! nothing of a later resize.

use crate::error::Error;
use crate::fault::Step;
use crate::layout::geometry::{control, SLOTS};
use crate::layout::state::{Kind, State};
use crate::memory::Memory;
use crate::protocol::writer::{Wait, Writer};
use crate::sync::{fence, AtomicU64, Ordering::*};

impl Memory {
    /// The resize word. Acquire: if it says that a resize was given up, no freezing of it is yet to come.
    #[inline]
    pub fn resize(&self) -> State {
        State(self.control(control::RESIZE).load(Acquire))
    }

    /// Returns whether this is the table, and no memory that another has taken the place of.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.resize().is_live()
    }

    /// Returns whether nothing of this memory is to be seen here any more. To be asked behind a read that
    /// found nothing.
    #[inline]
    pub fn is_gone(&self) -> bool {
        fence(Acquire);
        self.control(control::RESIZE).load(Relaxed) == 0
    }

    fn swap_resize(&self, from: State, to: State) -> bool {
        let word = self.control(control::RESIZE);
        word.compare_exchange(from.0, to.0, AcqRel, Relaxed).is_ok()
    }

    /// Ends this memory: from here on the other is the table. Returns false if the resize was given up.
    pub fn end(&self, resize: State) -> bool {
        self.swap_resize(resize, resize.next(false))
    }

    /// Cancels a resize if its word is still exactly this one.
    pub fn give_up(&self, resize: State) -> bool {
        resize.is_live() && self.swap_resize(resize, resize.next(true).frozen())
    }

    /// Thaws what a resize that was given up has left. Returns whether one was.
    pub fn thaw_all(&self) -> bool {
        self.thaw_each(&|_| Ok(())).unwrap_or(true)
    }

    fn thaw_each(&self, step: &impl Fn(Step) -> Result<(), Error>) -> Result<bool, Error> {
        let left = self.resize();
        if !left.is(Kind::Frozen) {
            return Ok(false);
        }
        for bucket in 0..self.geometry.buckets() {
            self.thaw(self.insert_lock(bucket), left);
            for index in 0..SLOTS {
                if self.thaw(self.word(self.geometry.slot(bucket, index)), left) {
                    step(Step::ResizeThawing)?;
                }
            }
        }
        self.swap_resize(left, left.next(true));
        Ok(true)
    }

    fn thaw(&self, word: &AtomicU64, left: State) -> bool {
        let seen = State(word.load(Acquire));
        // The resize word behind the other: while it is as it was, nothing was frozen for a later resize.
        seen.is(Kind::Frozen)
            && self.resize() == left
            && word.compare_exchange(seen.0, seen.next(seen.is_live()).0, AcqRel, Relaxed).is_ok()
    }
}

impl Writer<'_> {
    /// Makes this thread the one that resizes. Errors: `Moved`; `RowBusy`, if another thread resizes.
    pub fn begin_resize(&self, wait: &mut Wait) -> Result<State, Error> {
        let memory = self.memory;
        loop {
            let seen = memory.resize();
            if !seen.is_live() {
                return Err(Error::Moved);
            }
            if seen.owner() != 0 {
                self.wait_for_resizer(seen, wait)?;
                continue;
            }
            let held = seen.next(true).held(self.id, Kind::Moving);
            if memory.swap_resize(seen, held) {
                return Ok(held);
            }
        }
    }

    /// Freezes a slot or an insert lock, and returns the word before.
    pub fn freeze(&self, word: &AtomicU64, wait: &mut Wait) -> Result<State, Error> {
        loop {
            let seen = State(word.load(Acquire));
            let frozen = match seen {
                _ if seen.is(Kind::Frozen) => seen.next(seen.is_live()).frozen(),
                _ if seen.is_open() => seen.frozen(),
                _ => {
                    self.wait(word, seen, wait)?;
                    continue;
                }
            };
            if word.compare_exchange(seen.0, frozen.0, AcqRel, Relaxed).is_ok() {
                return Ok(seen);
            }
        }
    }

    /// Waits until a frozen word is no longer as it was seen. Errors: `Moved`, if it stays so for ever.
    #[cold]
    pub fn wait_for_resize(
        &self,
        word: &AtomicU64,
        seen: State,
        wait: &mut Wait,
    ) -> Result<(), Error> {
        let memory = self.memory;
        loop {
            let resize = memory.resize();
            if word.load(Acquire) != seen.0 {
                return Ok(());
            }
            if !resize.is_live() {
                return Err(Error::Moved);
            }
            if resize.owner() != 0 {
                self.wait_for_resizer(resize, wait)?;
            } else if !memory.thaw_each(&|step| self.at(step))? {
                // Remains of a resize are thawed before this is reported: the memory was damaged.
                memory.free_stray(word, seen);
            }
        }
    }

    /// Waits for a moment for who resizes; if it is dead, gives its resize up.
    fn wait_for_resizer(&self, resize: State, wait: &mut Wait) -> Result<(), Error> {
        let (memory, id) = (self.memory, resize.owner());
        let who = memory.who(id);
        // Behind `who`: if the word is as it was, this is who resizes.
        if memory.resize() != resize {
            return Ok(());
        }
        if memory.is_dead(id, who) {
            return self.recover(id, who);
        }
        wait.pause(self.patience, who)
    }
}
