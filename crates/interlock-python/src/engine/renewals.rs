//! Leases that are renewed without the GIL, from Python.

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::time::Duration;

use interlock_stores::network::{Peer, Renewals};
use pyo3::prelude::*;

use crate::runtime::fork::generation;

/// In the child of a fork it does nothing: its thread is the parent's, and so may be its lock.
#[pyclass(module = "interlock._core", frozen)]
pub struct LeaseRenewals {
    renewals: ManuallyDrop<Renewals>,
    generation: u32,
}

#[pymethods]
impl LeaseRenewals {
    #[new]
    #[pyo3(signature = (function, *, user, password, database, tls, ca, timeout))]
    fn new(
        function: String,
        user: Option<String>,
        password: Option<String>,
        database: u32,
        tls: bool,
        ca: Option<PathBuf>,
        timeout: f64,
    ) -> Self {
        let timeout = Duration::from_secs_f64(timeout);
        let peer = Peer { user, password, database, tls, ca, timeout, function };
        let renewals = ManuallyDrop::new(Renewals::new(peer));
        LeaseRenewals { renewals, generation: generation() }
    }

    #[allow(clippy::too_many_arguments)]
    fn hold(
        &self,
        key: u64,
        address: &str,
        queue: &str,
        token: u64,
        seconds: f64,
        deadline: f64,
        until: f64,
    ) {
        if self.is_own() {
            self.renewals.hold(key, address, queue, token, seconds, deadline, until);
        }
    }

    fn let_go(&self, key: u64) {
        if self.is_own() {
            self.renewals.let_go(key);
        }
    }

    fn bound(&self, key: u64, until: f64) {
        if self.is_own() {
            self.renewals.bound(key, until);
        }
    }

    #[getter]
    fn renewed(&self) -> u64 {
        if self.is_own() {
            self.renewals.renewed()
        } else {
            0
        }
    }

    fn errors(&self) -> Vec<String> {
        if self.is_own() {
            self.renewals.errors()
        } else {
            Vec::new()
        }
    }

    fn stop(&self) {
        if self.is_own() {
            self.renewals.stop();
        }
    }
}

impl LeaseRenewals {
    fn is_own(&self) -> bool {
        self.generation == generation()
    }
}

impl Drop for LeaseRenewals {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.renewals) };
        }
    }
}
