//! Resizing a table while it is in use.
//!
//! | step | if who resizes dies behind it |
//! |---|---|
//! | the resize word names who resizes | the old table, as it was |
//! | the new one is built, without a name | so too |
//! | the rows are copied, while others write; then each is frozen, and changes copied | the same: a process that finds a frozen row, or opens the table, thaws it |
//! | the new one is linked under a name that begins with a point | so too; the next to open it removes that |
//! | **the resize word says that the old one has ended** | the new one is the table |
//! | the new one is renamed to the table's name | the first process that uses the old one does this |
//!
//! So the resize word decides, and it changes once, by a compare-and-swap that fails if the resize
//! was given up. Every call looks at that word first, in a line of the cache that is hardly ever
//! written. A read that began before the end may still return what the old one held then, which
//! nothing has changed since. A write needs a lock, and frozen rows cannot be locked.
//!
//! A process that has followed gives the old memory back, though others of its threads may be
//! reading there: they then find zeroes, in the resize word too, and so know that a missing row
//! proves nothing.
//!
//! Both tables have one secret, by which they are known as the same, and so a key one hash.

use std::sync::Arc;

use crate::error::Error;
use crate::fault::Step;
use crate::layout::geometry;
use crate::layout::header::Header;
use crate::layout::state::State;
use crate::protocol::migration::{Migration, Resized};
use crate::protocol::writer::{Ask, Wait, Writer};
use crate::region::participant::Shared;
use crate::region::Region;
use crate::table::Table;

/// Cancels the resize if it is dropped before its end.
struct Begun<'a> {
    old: &'a Shared,
    word: State,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if self.old.region.memory.give_up(self.word) {
            self.old.region.clear_next();
            self.old.region.memory.thaw_all();
        }
    }
}

impl Table {
    /// Makes room for more rows or for fewer, while all processes that have the table open
    /// continue. Writers wait while the last rows are copied, for longer than their patience in a
    /// very large table. Errors: `TooSmall`, if it holds more live rows and none are to be dropped;
    /// `NoRoom`, for both exist for a while; `RowBusy`, if a writer is alive but stuck, or another
    /// resize runs; the file's, which must belong to this user. With an error the table is as it
    /// was.
    pub fn resize(&self, capacity: u64, drop: bool) -> Result<Resized, Error> {
        self.resize_unless(capacity, drop, || false)
    }

    /// Like `resize`; ends with `Interrupted` when `ask`, called a few times a second, requests it.
    pub fn resize_unless(&self, capacity: u64, drop: bool, ask: Ask) -> Result<Resized, Error> {
        let buckets = geometry::buckets(capacity).filter(|_| capacity > 0);
        let buckets = buckets.ok_or_else(|| Error::Invalid(format!("a capacity of {capacity}")))?;
        let mut wait = Wait::unless(ask);
        loop {
            let old = self.here()?;
            let writer = old.writer(self.patience)?;
            match writer.begin_resize(&mut wait) {
                Ok(word) => {
                    let begun = Begun { old, word };
                    let header = Header { capacity, buckets, ..old.region.header.clone() };
                    return self.hand_over(&begun, &writer, &header, drop, &mut wait);
                }
                Err(Error::Moved) => continue,
                Err(error) => return Err(error),
            }
        }
    }

    fn hand_over(
        &self,
        begun: &Begun,
        writer: &Writer,
        header: &Header,
        drop: bool,
        wait: &mut Wait,
    ) -> Result<Resized, Error> {
        let (old, capacity) = (&begun.old.region, header.capacity);
        writer.at(Step::ResizeBegun)?;
        old.check_owner()?;
        let rows = self.rows();
        if rows > capacity && !drop {
            return Err(Error::TooSmall { rows, capacity });
        }
        let new = Shared::new(Region::build(&old.path, header, old.mode)?);
        let resized = copy(writer, &new, drop, wait, || self.now());
        let resized = match resized {
            Err(Error::TableFull) => Err(Error::TooSmall { rows: self.rows(), capacity }),
            other => other,
        }?;
        old.bequeath(&new.region)?;
        writer.at(Step::ResizeFrozen)?;
        old.link_next(&new.region)?;
        writer.at(Step::ResizeLinked)?;
        if !old.memory.end(begun.word) {
            return Err(Error::RowBusy { pid: 0 });
        }
        writer.at(Step::ResizeEnded)?;
        // If this fails, the next process that uses the old one does it.
        let _ = old.publish_next();
        writer.at(Step::ResizePublished)?;
        begun.old.follow(new);
        Ok(resized)
    }
}

fn copy(
    writer: &Writer,
    new: &Arc<Shared>,
    drop: bool,
    wait: &mut Wait,
    now: impl Fn() -> u64,
) -> Result<Resized, Error> {
    let target = new.writer(writer.patience)?;
    let mut migration = Migration::new(writer, &target, drop);
    migration.copy(now(), wait)?;
    writer.at(Step::ResizeCopied)?;
    migration.finish(now(), wait)
}
