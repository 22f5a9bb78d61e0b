//! The arguments of a put, for Python code that sends it elsewhere: checked by the very code that
//! checks it for a queue in this process.

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::coalesce::Coalesce;
use interlock_core::queue::scheduler::Put;
use interlock_core::queue::types::limits::names_of;
use interlock_core::queue::types::Behind;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::queue::arguments::{CoalesceArguments, Named, PutArguments};
use crate::queue::named_batch::{BatchArguments, NamedBatch};
use crate::queue::Queue;

/// Keys, shared keys, priority, seconds of delay, dedup string, whether it is a barrier, and quiet,
/// limit names, joined, group, and its outcome behind a failure, if it names one; coalescing name, seconds
/// of debounce, and its longest time (0, 0: not debounced).
type Names<'py> = (
    Bound<'py, PyTuple>,
    Bound<'py, PyTuple>,
    i8,
    f64,
    Option<String>,
    bool,
    bool,
    Bound<'py, PyBytes>,
    String,
    Option<&'static str>,
    Option<(Bound<'py, PyBytes>, f64, f64)>,
);

#[pymethods]
impl Queue {
    /// The keys, shared keys and limit names that many calls will be put with.
    fn _named<'py>(
        slf: &Bound<'py, Self>,
        call: &str,
        keys: &Bound<'py, PyAny>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyTuple>, Bound<'py, PyTuple>, Bound<'py, PyTuple>)> {
        let (py, keys) = (slf.py(), Some(keys));
        let put = PutArguments { keys, shared, priority, quiet, limit, ..PutArguments::default() };
        let named = Named::new(slf.get(), call, slf.as_any(), &put)?;
        let refs = named.refs();
        let put = named.put(&refs);
        let names = names_of(put.limit).unwrap_or_default();
        let names = names.iter().map(|name| String::from_utf8_lossy(name));
        Ok((tuple(py, put.keys)?, tuple(py, put.shared)?, PyTuple::new(py, names)?))
    }

    /// Returns what a put of this queue would name.
    #[allow(clippy::too_many_arguments)]
    fn _named_put<'py>(
        &self,
        call: &str,
        payload: &Bound<'py, PyAny>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        barrier: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
        behind: Option<&Bound<'py, PyAny>>,
        coalesce: Option<&Bound<'py, PyAny>>,
        debounce: Option<&Bound<'py, PyAny>>,
        longest: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Names<'py>> {
        let coalesce = CoalesceArguments { coalesce, debounce, longest };
        let put = PutArguments {
            keys,
            shared,
            priority,
            delay,
            dedup,
            barrier,
            quiet,
            limit,
            group,
            behind,
            coalesce,
        };
        let named = Named::new(self, call, payload, &put)?;
        let refs = named.refs();
        names(payload.py(), &named.put(&refs))
    }

    /// Returns what each put of a batch would name.
    #[allow(clippy::too_many_arguments)]
    fn _named_many<'py>(
        &self,
        py: Python<'py>,
        payloads: Vec<Bound<'py, PyAny>>,
        keys: Option<&Bound<'py, PyAny>>,
        shared: Option<&Bound<'py, PyAny>>,
        each_keys: Option<&Bound<'py, PyAny>>,
        each_shared: Option<&Bound<'py, PyAny>>,
        priority: Option<&Bound<'py, PyAny>>,
        delay: Option<&Bound<'py, PyAny>>,
        dedup: Option<&Bound<'py, PyAny>>,
        quiet: Option<&Bound<'py, PyAny>>,
        limit: Option<&Bound<'py, PyAny>>,
        group: Option<&Bound<'py, PyAny>>,
        behind: Option<&Bound<'py, PyAny>>,
        coalesce: Option<&Bound<'py, PyAny>>,
        debounce: Option<&Bound<'py, PyAny>>,
        longest: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Names<'py>>> {
        let coalesce = CoalesceArguments { coalesce, debounce, longest };
        let put = BatchArguments {
            keys,
            shared,
            each_keys,
            each_shared,
            priority,
            delay,
            dedup,
            quiet,
            limit,
            group,
            behind,
            coalesce,
        };
        let named = NamedBatch::new(self, &payloads, &put)?;
        named.with_puts(|puts| puts.iter().map(|put| names(py, put)).collect())
    }
}

fn names<'py>(py: Python<'py>, put: &Put<'_>) -> PyResult<Names<'py>> {
    let (keys, shared) = (tuple(py, put.keys)?, tuple(py, put.shared)?);
    let (delay, dedup) = (put.delay as f64 / 1e6, put.dedup.map(str::to_owned));
    let limit = PyBytes::new(py, put.limit);
    let group = String::from_utf8_lossy(put.group).into_owned();
    let behind = put.behind.map(Behind::word);
    let coalesce = put.coalesce.map(|coalesce| {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let Coalesce { name, debounce, within, .. } = *coalesce;
        (PyBytes::new(py, name), seconds(debounce), seconds(within))
    });
    let Put { priority, barrier, quiet, .. } = *put;
    Ok((keys, shared, priority, delay, dedup, barrier, quiet, limit, group, behind, coalesce))
}

fn tuple<'py>(py: Python<'py>, keys: &[KeyRef<'_>]) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, keys.iter().map(|key| PyBytes::new(py, key.bytes)))
}
