//! The judgement on what a handler raised, which is Python's: see `interlock.failure`.

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::runtime::convert::micros;
use crate::runtime::once::Once;

static JUDGED: Once<Py<PyAny>> = Once::new();

/// The judgement of `interlock.failure` on what a handler raised; `on`: exceptions that are retried.
pub fn judged<'py>(
    error: &Bound<'py, PyAny>,
    on: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    JUDGED.import(error.py(), "interlock.failure", "judged")?.call1((error, on))
}

/// The wish of a handler that raised RetryAfter or Reject, as they are meant.
pub enum Steered {
    /// After this many µs.
    Retry(u64, Closes),
    /// After this many µs, without counting an attempt.
    Defer(u64, Closes),
    /// With the reason.
    Reject(String),
}

/// The limit name that is closed to all messages until then.
pub type Closes = Option<String>;

impl Steered {
    pub fn by(error: &Bound<'_, PyAny>, on: &Bound<'_, PyTuple>) -> PyResult<Option<Self>> {
        let judged = judged(error, on.as_any())?;
        if !judged.getattr("steered")?.is_truthy()? {
            return Ok(None);
        }
        let delay = judged.getattr("delay")?;
        if delay.is_none() {
            return Ok(Some(Steered::Reject(judged.getattr("text")?.extract()?)));
        }
        let delay = micros(&delay, "RetryAfter")?;
        let closes = judged.getattr("limit")?.extract()?;
        match judged.getattr("how")?.eq("defer")? {
            true => Ok(Some(Steered::Defer(delay, closes))),
            false => Ok(Some(Steered::Retry(delay, closes))),
        }
    }
}
