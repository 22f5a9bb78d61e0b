//! The keys that a lease shows: copied from the queue, which forgets them when the message is settled.

use interlock_core::key::Key;

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
    pub fn add(keys: &mut Option<NamedKeys>, key: &Key, shared: bool) {
        match keys {
            None => *keys = Some(NamedKeys::One([(key.clone(), shared)])),
            Some(NamedKeys::Several(several)) => several.push((key.clone(), shared)),
            Some(NamedKeys::One(_)) => NamedKeys::add_second(keys, key, shared),
        }
    }

    #[inline(never)]
    fn add_second(keys: &mut Option<NamedKeys>, key: &Key, shared: bool) {
        if let Some(NamedKeys::One(first)) = keys.take() {
            let mut several = Vec::with_capacity(4);
            several.extend(first);
            several.push((key.clone(), shared));
            *keys = Some(NamedKeys::Several(several));
        }
    }

    pub fn as_slice(&self) -> &[(Key, bool)] {
        match self {
            NamedKeys::One(one) => one,
            NamedKeys::Several(several) => several,
        }
    }
}
