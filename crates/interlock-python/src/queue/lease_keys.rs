//! The keys that a lease shows: copied from the queue, which forgets them when the message is settled.

use interlock_core::key::Key;
use pyo3::prelude::*;

use crate::runtime::gil::GilCell;

/// Emptied lists for up to 4 keys. To allocate and free one costs as much as a key does in the queue.
static SPARE: GilCell<Vec<Vec<(Key, bool)>>> = GilCell::new(Vec::new());
const MOST_SPARE: usize = 64;

/// A message's keys, each with whether it is shared.
pub enum NamedKeys {
    /// Most messages' only key is in the lease itself.
    One([(Key, bool); 1]),
    /// Also used for no keys, once that is known.
    Several(Vec<(Key, bool)>),
}

impl NamedKeys {
    /// Adds a key to those of a message.
    #[inline(always)]
    pub fn add(py: Python<'_>, keys: &mut Option<NamedKeys>, key: &Key, shared: bool) {
        match keys {
            None => *keys = Some(NamedKeys::One([(key.clone(), shared)])),
            Some(NamedKeys::Several(several)) => several.push((key.clone(), shared)),
            Some(NamedKeys::One(_)) => NamedKeys::add_second(py, keys, key, shared),
        }
    }

    #[inline(never)]
    fn add_second(py: Python<'_>, keys: &mut Option<NamedKeys>, key: &Key, shared: bool) {
        if let Some(NamedKeys::One(first)) = keys.take() {
            let spare = SPARE.with_mut(py, Vec::pop);
            let mut several = spare.unwrap_or_else(|| Vec::with_capacity(4));
            several.extend(first);
            several.push((key.clone(), shared));
            *keys = Some(NamedKeys::Several(several));
        }
    }

    /// Drops the keys of a lease, but keeps the memory of a few for the next lease.
    #[inline(always)]
    pub fn recycle(self, py: Python<'_>) {
        if let NamedKeys::Several(mut several) = self {
            several.clear();
            SPARE.with_mut(py, |spare| {
                if spare.len() < MOST_SPARE && several.capacity() == 4 {
                    spare.push(several);
                }
            });
        }
    }

    pub fn as_slice(&self) -> &[(Key, bool)] {
        match self {
            NamedKeys::One(one) => one,
            NamedKeys::Several(several) => several,
        }
    }
}
