//! Flags by key, taken and given back while handlers run: the first way to see an overlap.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::spec::Spec;

/// By key: -1 while one holds it alone, else how many share it.
pub struct Flags(Vec<AtomicI64>);

impl Flags {
    pub fn new(many_keys: usize) -> Self {
        Flags((0..=many_keys).map(|_| AtomicI64::new(0)).collect())
    }

    /// Panics if a key is held by what conflicts.
    pub fn take(&self, spec: &Spec) {
        for &(key, shared) in &spec.keys {
            if shared {
                let before = self.0[key].fetch_add(1, Ordering::SeqCst);
                assert!(before >= 0, "clause 2: shares key {key} with one that has it alone");
            } else {
                let taken = self.0[key].compare_exchange(0, -1, Ordering::SeqCst, Ordering::SeqCst);
                assert!(taken.is_ok(), "clause 2: takes key {key} alone, but found {taken:?}");
            }
        }
    }

    pub fn give_back(&self, spec: &Spec) {
        for &(key, shared) in &spec.keys {
            let before = self.0[key].fetch_add(if shared { -1 } else { 1 }, Ordering::SeqCst);
            let held = if shared { before > 0 } else { before == -1 };
            assert!(held, "clause 2: key {key} was taken from its handler: {before}");
        }
    }
}
