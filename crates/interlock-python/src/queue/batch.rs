//! Puts that wait: named once, however often it is looked whether there is room.

use std::sync::Mutex;
use std::task::Waker;

use interlock_core::key::{Key, KeyRef};
use interlock_core::queue::calls::coalesce::Coalesce;
use interlock_core::queue::scheduler::{Placed, Put};
use interlock_core::queue::types::{Behind, Time};
use interlock_core::queue::waiting::waiters::{Wait, Want};
use interlock_core::queue::Look;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::queue::arguments::Times;
use crate::runtime::gil::Core;

/// The arguments of a put, kept.
struct Kept {
    keys: Vec<Key>,
    shared: Vec<Key>,
    priority: i8,
    delay: Time,
    dedup: Option<String>,
    barrier: bool,
    size: u64,
    quiet: bool,
    limit: Vec<u8>,
    group: Vec<u8>,
    coalesce: Option<(Key, Times)>,
    behind: Option<Behind>,
}

/// One put or several, with their payloads until they are in the queue.
#[pyclass(frozen, module = "interlock._core")]
pub struct Batch {
    puts: Vec<Kept>,
    payloads: Mutex<Vec<Option<Py<PyAny>>>>,
    #[pyo3(get)]
    pub call: &'static str,
}

impl Batch {
    pub fn new(call: &'static str, puts: &[Put<'_>], payloads: Vec<Option<Py<PyAny>>>) -> Self {
        let keys = |keys: &[KeyRef<'_>]| keys.iter().map(|key| Key::new(key.bytes)).collect();
        let kept = |put: &Put<'_>| Kept {
            keys: keys(put.keys),
            shared: keys(put.shared),
            priority: put.priority,
            delay: put.delay,
            dedup: put.dedup.map(str::to_owned),
            barrier: put.barrier,
            size: put.size,
            quiet: put.quiet,
            limit: put.limit.to_vec(),
            group: put.group.to_vec(),
            coalesce: put.coalesce.map(|&Coalesce { name, debounce, within, .. }| {
                (Key::new(name), Times { debounce, within })
            }),
            behind: put.behind,
        };
        Batch { puts: puts.iter().map(kept).collect(), payloads: Mutex::new(payloads), call }
    }

    pub fn want(&self) -> Want {
        Want::Room(self.puts.len(), self.size())
    }

    fn size(&self) -> u64 {
        self.puts.iter().map(|put| put.size).fold(0, u64::saturating_add)
    }

    /// Puts all of it, or takes a place in the line of those who wait for room.
    pub fn look(&self, core: &Core, wait: &mut Wait, waker: &Waker) -> Look<Vec<Placed>> {
        let refs: Vec<(Vec<KeyRef<'_>>, Vec<KeyRef<'_>>)> =
            self.puts.iter().map(|put| (borrowed(&put.keys), borrowed(&put.shared))).collect();
        let names: Vec<Option<Coalesce<'_>>> = self
            .puts
            .iter()
            .map(|put| put.coalesce.as_ref().map(|(name, times)| times.of(name.as_bytes())))
            .collect();
        let puts: Vec<Put<'_>> = self
            .puts
            .iter()
            .zip(refs.iter().zip(&names))
            .map(|(put, ((keys, shared), name))| Put {
                keys,
                shared,
                priority: put.priority,
                delay: put.delay,
                dedup: put.dedup.as_deref(),
                barrier: put.barrier,
                size: put.size,
                quiet: put.quiet,
                limit: &put.limit,
                group: &put.group,
                coalesce: name.as_ref(),
                behind: put.behind,
                ..Put::default()
            })
            .collect();
        // Taken out, for a wake in the call runs Python code, and with it the garbage collector.
        let mut payloads = std::mem::take(&mut *self.payloads.lock().expect("never poisoned"));
        let found = core.put_many_or_wait(&puts, &mut payloads, wait, waker);
        *self.payloads.lock().expect("never poisoned") = payloads;
        found
    }
}

fn borrowed(keys: &[Key]) -> Vec<KeyRef<'_>> {
    keys.iter().map(|key| KeyRef::new(key.as_bytes())).collect()
}

#[pymethods]
impl Batch {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(payloads) = self.payloads.try_lock() else { return Ok(()) };
        payloads.iter().try_for_each(|payload| visit.call(payload))
    }
}
