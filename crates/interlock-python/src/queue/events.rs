//! Says what the queue noted: outside the lock, in Python, where the loggers are.

use interlock_core::queue::parts::watch::Event;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::queue::explanation;
use crate::queue::operate::failed_to_python;
use crate::queue::Queue;
use crate::runtime::exit;
use crate::runtime::once::Once;

static REPORT: Once<Py<PyAny>> = Once::new();

/// Messages of the explanation that goes with a note about something slow.
const CHAIN: usize = 20;

fn report(py: Python<'_>) -> PyResult<&Py<PyAny>> {
    REPORT.get_or_try_init(py, || Ok(py.import("interlock.watch")?.getattr("report")?.unbind()))
}

impl Queue {
    /// Logs the events since the last time.
    #[inline]
    pub fn say(&self, py: Python<'_>) -> PyResult<()> {
        if self.core.has_events() {
            self.say_all(py)?;
        }
        Ok(())
    }

    /// Logs that a call failed for good. An exception of the log does not change the call's end.
    #[cold]
    pub fn say_ended(&self, py: Python<'_>, id: u64, attempt: u32, error: &str) {
        let say = || {
            let event = ("ended", id, attempt, error).into_pyobject(py)?;
            report(py)?.call1(py, (self.queue_name(), [event]))
        };
        if let Err(error) = say() {
            error.write_unraisable(py, None);
        }
    }

    #[cold]
    fn say_all(&self, py: Python<'_>) -> PyResult<()> {
        exit::prepare();
        let report = report(py)?;
        let events = PyList::empty(py);
        for event in self.core.take_events() {
            if let Some(event) = self.to_python(py, event)? {
                events.append(event)?;
            }
        }
        match report.call1(py, (self.queue_name(), events, self.number)) {
            Ok(debug) => {
                let debug = debug.is_truthy(py)?;
                self.core.call(|scheduler, _| scheduler.watch().wants_handled = debug);
                Ok(())
            }
            // A filter or handler of the log that raises must not make a call fail that was made; but
            // Ctrl-C is for the caller.
            Err(error) if error.is_instance_of::<PyException>(py) => {
                error.write_unraisable(py, None);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// `None`: only a reason to look whether the debug log is wanted.
    fn to_python<'py>(
        &self,
        py: Python<'py>,
        event: Event,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let seconds = |micros: u64| micros as f64 / 1e6;
        let explain = |id: u64| {
            let explained = self.core.call(|scheduler, now| scheduler.explain(now, id, CHAIN));
            explained.map(|explained| explanation::to_python(py, &explained)).transpose()
        };
        let tuple = match event {
            Event::Second => return Ok(None),
            Event::Depth { depth, serialised_by } => {
                let key = serialised_by.map(|key| PyBytes::new(py, &key));
                ("depth", depth, key).into_pyobject(py)
            }
            Event::MoreLanes { lanes } => ("more_lanes", lanes).into_pyobject(py),
            Event::LaneDepth { key, depth } => {
                ("lane_depth", PyBytes::new(py, &key), depth).into_pyobject(py)
            }
            Event::SlowWait { id, waited, others } => {
                ("slow_wait", id, seconds(waited), others, explain(id)?).into_pyobject(py)
            }
            Event::SlowLease { id, consumer, held } => {
                ("slow_lease", id, consumer, seconds(held), explain(id)?).into_pyobject(py)
            }
            Event::Parked { count, key, waited, behind } => {
                let key = PyBytes::new(py, &key);
                ("parked", count, key, seconds(waited), behind).into_pyobject(py)
            }
            Event::Swept { key, behind, buried, cancelled } => {
                ("swept", PyBytes::new(py, &key), behind, buried, cancelled).into_pyobject(py)
            }
            Event::Failed { id, attempt, failed, error } => {
                ("failed", id, attempt, failed_to_python(failed), error).into_pyobject(py)
            }
            Event::Handled { id, keys, attempt, waited, handled } => {
                let keys: Vec<_> = keys.iter().map(|key| PyBytes::new(py, key)).collect();
                ("handled", id, keys, attempt, seconds(waited), seconds(handled)).into_pyobject(py)
            }
        };
        tuple.map(Some)
    }
}
