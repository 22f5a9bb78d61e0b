//! A part of a queue that most queues never need.

use std::ops::{Deref, DerefMut};

/// Takes a pointer until it is changed for the first time, and reads as an empty part until then.
#[derive(Debug)]
pub struct Lazy<T>(Option<Box<T>>);

/// A part that may be lazy.
pub trait Part: Default + 'static {
    /// Returns the one that is read in place of those that are not there.
    fn empty() -> &'static Self;
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Lazy(None)
    }
}

impl<T: Part> Lazy<T> {
    pub fn new(part: T) -> Self {
        Lazy(Some(Box::new(part)))
    }

    /// Like a call of the part, for those that each message makes: they do not look at an empty one.
    #[inline(always)]
    pub fn is_some_and(&self, holds: impl FnOnce(&T) -> bool) -> bool {
        self.0.as_deref().is_some_and(holds)
    }

    /// Like `is_some_and`, for what holds of an empty one.
    #[inline(always)]
    pub fn is_none_or(&self, holds: impl FnOnce(&T) -> bool) -> bool {
        self.0.as_deref().is_none_or(holds)
    }

    /// Frees it if it is as good as an empty one.
    pub fn free_if(&mut self, is_unused: impl FnOnce(&T) -> bool) {
        if self.is_some_and(is_unused) {
            self.0 = None;
        }
    }

    /// Bytes of the part itself, without its tables.
    pub fn own_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |_| size_of::<T>())
    }
}

impl<T: Part> Deref for Lazy<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or_else(|| T::empty())
    }
}

impl<T: Part> DerefMut for Lazy<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
