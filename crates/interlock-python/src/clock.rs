//! A clock that a test moves by hand.

use std::sync::Mutex;

use interlock_core::clock::Clock;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::convert::micros;
use crate::engine::Engine;
use crate::queue::Queue;

/// Time for tests: it stands still until `advance` moves it.
#[pyclass(frozen, module = "interlock._core", weakref)]
pub struct ManualClock {
    pub clock: Clock,
    queues: Mutex<Vec<Py<PyWeakrefReference>>>,
}

impl ManualClock {
    /// The queue, or the engine, is told when the clock is moved.
    pub fn follow(&self, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        let reference = PyWeakrefReference::new(queue)?.unbind();
        self.queues.lock().expect("never poisoned").push(reference);
        Ok(())
    }
}

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (start = None))]
    fn new(start: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let start = start.map_or(Ok(0), |start| micros(start, "ManualClock(): start"))?;
        Ok(ManualClock { clock: Clock::manual(start), queues: Mutex::default() })
    }

    /// Seconds since the start of the count.
    fn now(&self) -> f64 {
        self.clock.now() as f64 / 1e6
    }

    fn advance(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        self.clock.advance(micros(seconds, "advance(): seconds")?);
        let queues: Vec<Bound<'_, PyAny>> = {
            let mut queues = self.queues.lock().expect("never poisoned");
            queues.retain(|queue| queue.bind(py).upgrade().is_some());
            queues.iter().filter_map(|queue| queue.bind(py).upgrade()).collect()
        };
        for queue in queues {
            if let Ok(engine) = queue.cast::<Engine>() {
                engine.get().tick(py);
                continue;
            }
            let queue = queue.cast::<Queue>()?;
            queue.get().core.clock_moved();
            queue.get().say(py)?;
        }
        Ok(())
    }
}
