//! The destination of a store's messages.

use interlock_stores::file::Counters;
use interlock_stores::StoreError;

use super::load::{Left, Load};
use super::queue::End;
use super::settings::StoreKind;

/// Used by one thread. It keeps what it was given until that is written or withdrawn: after an
/// error it is given the same again, or asked to give it back.
pub trait Sink: Send {
    /// Does beforehand what the first write would do.
    fn open(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Puts what is left; all of it is as safe as the sink makes it when this returns, and done.
    fn write(&mut self, load: &Load, left: &mut Left) -> Result<(), StoreError>;

    /// Returns the messages that could not be written; the others are done.
    fn withdraw(&mut self, load: &Load, left: &mut Left);

    /// To be called each second; `now` in µs since 1970.
    fn tick(&mut self, _now: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Does a piece of what can wait; returns whether there is more.
    fn upkeep(&mut self, _now: u64) -> Result<bool, StoreError> {
        Ok(false)
    }

    fn rotate(&mut self) -> Result<(), StoreError> {
        Ok(())
    }

    /// All up to this ticket of the queue has been written.
    fn reached(&mut self, _ticket: u64) {}

    /// Applies new settings. False: it cannot, and must be closed.
    fn turn(&mut self, _kind: &StoreKind) -> bool {
        false
    }

    /// Returns whether it has finished, and must be replaced by another sink.
    fn is_past(&self) -> bool {
        false
    }

    /// The number of messages that it has taken, and that are not where they belong.
    fn waiting(&self) -> u64 {
        0
    }

    /// Hears how the store ends, before it is closed.
    fn end(&mut self, _end: End) {}

    fn close(self: Box<Self>) -> Result<(), StoreError>;

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

/// Nowhere.
pub struct NullSink;

impl Sink for NullSink {
    fn write(&mut self, _load: &Load, left: &mut Left) -> Result<(), StoreError> {
        left.all_done();
        Ok(())
    }

    fn withdraw(&mut self, _load: &Load, _left: &mut Left) {}

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}
