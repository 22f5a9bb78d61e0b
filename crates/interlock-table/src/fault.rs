//! The steps of the write path, at each of which a test can have the writer die or stop.
//!
//! Without the feature `faults`, and outside the model checker, passing a step is nothing at all.

/// A step that a writer has just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Step {
    /// The insert lock of the home bucket is held.
    InsertLocked = 1,
    /// A slot is held for the new row.
    SlotClaimed,
    /// Half of the new row is in its place.
    RowHalfWritten,
    RowWritten,
    TagWritten,
    /// The new row is counted, and not yet there.
    RowCounted,
    /// The new row is there; the insert lock is still held.
    RowPublished,
    /// The slot is held for one word.
    WordLocked,
    WordWritten,
    /// The own scratch row is filled, and nothing locked.
    ImageFilled,
    /// The write has happened: readers take the image.
    ImageLocked,
    ImageHalfCopied,
    ImageCopied,
    /// A row's slot is held, for it is to move.
    SourceLocked,
    TargetClaimed,
    TargetHalfCopied,
    TargetTagged,
    /// The copy is whole, and not yet published.
    SourceMoved,
    TargetCounted,
    TargetPublished,
    /// The slot that the row left is held for another.
    SourceFreed,
    /// A row is gone, and its tag is not.
    DeleteClaimed,
    DeleteUntagged,
    DeleteCounted,
    /// A dead owner's image is in the scratch row kept for that.
    RedoFilled,
    /// A dead owner's slot is held by who finishes it.
    RedoTaken,
    RedoHalfCopied,
    RedoCopied,
    /// The move of a dead owner is decided in its target, and not in its source.
    RecoveredTarget,
    /// The slots of a dead owner are free, and its insert lock is not.
    RecoveredSlots,
    /// The count of a dead owner has what it lacked, and its slot is held still.
    RecoveredCounted,
    /// The table says who resizes it.
    ResizeBegun,
    /// The rows are in the new table, as they were, and nothing is frozen.
    ResizeCopied,
    /// One more row is frozen.
    ResizeFreezing,
    /// The old table no longer changes, and the new table is complete.
    ResizeFrozen,
    /// The new table has a name of its own.
    ResizeLinked,
    /// The old table has ended: the new one is the table.
    ResizeEnded,
    /// The new table has the old one's name.
    ResizePublished,
    /// A dead one's resize is given up, and the rows are frozen still.
    ResizeGivenUp,
    /// One more row is not frozen any more.
    ResizeThawing,
}

impl Step {
    #[cfg(feature = "faults")]
    pub const ALL: [Step; Step::ResizeThawing as usize] = {
        use Step::*;
        [
            InsertLocked,
            SlotClaimed,
            RowHalfWritten,
            RowWritten,
            TagWritten,
            RowCounted,
            RowPublished,
            WordLocked,
            WordWritten,
            ImageFilled,
            ImageLocked,
            ImageHalfCopied,
            ImageCopied,
            SourceLocked,
            TargetClaimed,
            TargetHalfCopied,
            TargetTagged,
            SourceMoved,
            TargetCounted,
            TargetPublished,
            SourceFreed,
            DeleteClaimed,
            DeleteUntagged,
            DeleteCounted,
            RedoFilled,
            RedoTaken,
            RedoHalfCopied,
            RedoCopied,
            RecoveredTarget,
            RecoveredSlots,
            RecoveredCounted,
            ResizeBegun,
            ResizeCopied,
            ResizeFreezing,
            ResizeFrozen,
            ResizeLinked,
            ResizeEnded,
            ResizePublished,
            ResizeGivenUp,
            ResizeThawing,
        ]
    };
}

#[cfg(feature = "faults")]
pub use armed::{arm, pass, EXEC};

#[cfg(feature = "faults")]
mod armed {
    use crate::fault::Step;
    use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, Ordering::*};

    static STEP: AtomicU32 = AtomicU32::new(0);
    static LEFT: AtomicI64 = AtomicI64::new(0);
    static SIGNAL: AtomicI32 = AtomicI32::new(0);

    /// In place of a signal (0 is not one): the process becomes another program, which stops
    /// itself.
    pub const EXEC: i32 = 0;

    /// Has this process send itself the signal when it has passed the step this often; 0 disarms.
    pub fn arm(step: u32, times: i64, signal: i32) {
        LEFT.store(times, SeqCst);
        SIGNAL.store(signal, SeqCst);
        STEP.store(step, SeqCst);
    }

    #[inline]
    pub fn pass(step: Step) {
        // Relaxed: it is set before the first write.
        if STEP.load(Relaxed) == step as u32 && LEFT.fetch_sub(1, SeqCst) == 1 {
            match SIGNAL.load(SeqCst) {
                EXEC => {
                    use std::os::unix::process::CommandExt;
                    let error =
                        std::process::Command::new("sh").args(["-c", "kill -STOP $$"]).exec();
                    panic!("{error}");
                }
                // SAFETY: takes no pointer. Both signals that are used take effect before it returns.
                signal => drop(unsafe { libc::raise(signal) }),
            }
        }
    }
}
