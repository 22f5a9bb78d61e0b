//! A clock that a test moves by hand, and the judgement of a clock that is not this machine's.

use std::sync::Mutex;

use interlock_core::clock::Clock;
use interlock_core::wall_clock;
use pyo3::prelude::*;
use pyo3::types::{PyWeakrefMethods, PyWeakrefReference};

use crate::engine::Engine;
use crate::queue::Queue;
use crate::runtime::convert::micros;
use crate::runtime::errors::wrong_value;

/// Time for tests: it stands still until `advance` moves it.
#[pyclass(frozen, module = "interlock._core", weakref)]
pub struct ManualClock {
    pub clock: Clock,
    queues: Mutex<Vec<Py<PyWeakrefReference>>>,
}

impl ManualClock {
    /// Has the queue, or the engine, notified when the clock is moved.
    pub fn follow(&self, queue: &Bound<'_, PyAny>) -> PyResult<()> {
        let py = queue.py();
        let reference = PyWeakrefReference::new(queue)?.unbind();
        let mut queues = self.queues.lock().expect("never poisoned");
        // If the clock is never moved, nothing else forgets queues that are gone.
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.bind_borrowed(py).upgrade().is_some());
        }
        queues.push(reference);
        Ok(())
    }
}

/// The judgement of a server's clock, for dates: see `interlock_core::wall_clock`.
#[pyclass(module = "interlock._core")]
pub struct WallClock(wall_clock::WallClock);

#[pymethods]
impl WallClock {
    #[new]
    fn new() -> Self {
        WallClock(wall_clock::WallClock::new())
    }

    /// Takes a reading of both clocks, in µs. Returns the time to use, and the size of a jump that is
    /// followed from now on in µs; 0: none.
    fn read(&mut self, wall: u64, elapsed: u64) -> (u64, i64) {
        let reading = self.0.read(wall, elapsed);
        let followed = self.0.take_changes().into_iter().find_map(|change| match change {
            wall_clock::Change::Followed(by) => Some(by),
            _ => None,
        });
        (reading.time, followed.unwrap_or(0))
    }
}

#[pymethods]
impl ManualClock {
    #[new]
    #[pyo3(signature = (start = None))]
    fn new(start: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let start = start.map_or(Ok(0), |start| within(start, "ManualClock(): start", LATEST))?;
        Ok(ManualClock { clock: Clock::manual(start), queues: Mutex::default() })
    }

    /// Returns the number of queues that it remembers, those that are gone included.
    fn _following(&self) -> usize {
        self.queues.lock().expect("never poisoned").len()
    }

    /// Seconds since the start of the count.
    fn now(&self) -> f64 {
        self.clock.now() as f64 / 1e6
    }

    fn advance(&self, py: Python<'_>, seconds: &Bound<'_, PyAny>) -> PyResult<()> {
        let left = LATEST - self.clock.now();
        self.clock.advance(within(seconds, "advance(): seconds", left)?);
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

/// As late as it may be, µs: tokens follow the time, and are below 2^53 (clause 8).
const LATEST: u64 = 1 << 52;

fn within(seconds: &Bound<'_, PyAny>, argument: &str, most: u64) -> PyResult<u64> {
    let span = micros(seconds, argument)?;
    if span > most {
        return Err(wrong_value(argument, seconds, &format!("0 to {} here", most / 1_000_000)));
    }
    Ok(span)
}
