//! The states of a table's rows, in Python: what databases and comparisons need of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use interlock_log::stamp;
use interlock_log::state::{Invalid, Layout, Rules};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::table::columns::object;

/// Values of all columns or None, time of expiry, time from which it may be forgotten, time of the newest change.
type Shown<'py> = (Option<Bound<'py, PyTuple>>, u64, u64, u64);

/// The states of one table: how they are shown, joined and checked.
#[pyclass(module = "interlock._core", frozen)]
pub struct StateRules {
    rules: Rules,
    layouts: Mutex<HashMap<String, Arc<Layout>>>,
}

#[pymethods]
impl StateRules {
    #[new]
    fn new(fingerprint: &str) -> PyResult<StateRules> {
        let rules = Rules::parse(fingerprint).map_err(refused)?;
        Ok(StateRules { rules, layouts: Mutex::default() })
    }

    #[getter]
    fn fingerprint(&self) -> String {
        self.rules.fingerprint()
    }

    #[getter]
    fn schema(&self) -> String {
        self.rules.schema().to_string()
    }

    #[getter]
    fn layout(&self) -> String {
        self.rules.layout()
    }

    #[getter]
    fn age_ms(&self) -> u64 {
        self.rules.age_ms()
    }

    /// Raises ValueError unless it is a state that these rules could have written.
    fn check(&self, state: &[u8]) -> PyResult<()> {
        self.rules.check(state).map(|_| ()).map_err(refused)
    }

    /// Returns the row of a state at a time, in ms since 1970.
    fn shown<'py>(&self, py: Python<'py>, state: &[u8], now_ms: u64) -> PyResult<Shown<'py>> {
        let view = self.rules.view_of(Some(state), now_ms);
        let values = view.values().map(|values| {
            let values = values.into_iter().map(|value| object(py, value));
            PyTuple::new(py, values.collect::<PyResult<Vec<_>>>()?)
        });
        let life = self.rules.life(state);
        let newest = stamp::reading(self.rules.newest_of(state)) >> stamp::COUNTER_BITS;
        Ok((values.transpose()?, life.expires_at, life.forgettable_at, newest))
    }

    /// Two states of a key as one; `ours` itself where nothing changes.
    fn join<'py>(
        &self,
        py: Python<'py>,
        ours: Bound<'py, PyBytes>,
        theirs: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let theirs = self.rules.check(theirs).map_err(refused)?;
        let joined = self.rules.join_bytes(ours.as_bytes(), &theirs);
        Ok(joined.map_or(ours, |joined| PyBytes::new(py, joined.as_bytes())))
    }

    /// A state of another layout in this one. Raises ValueError if a column cannot hold its value any more.
    fn relaid<'py>(
        &self,
        py: Python<'py>,
        layout: &str,
        state: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let layout = self.layout_of(layout)?;
        let state = self.rules.relaid(&layout, state).map_err(refused)?;
        Ok(PyBytes::new(py, state.as_bytes()))
    }
}

impl StateRules {
    fn layout_of(&self, text: &str) -> PyResult<Arc<Layout>> {
        let mut layouts = self.layouts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = layouts.get(text) {
            return Ok(found.clone());
        }
        let found = Arc::new(self.rules.layout_of(text).map_err(refused)?);
        layouts.insert(text.to_owned(), found.clone());
        Ok(found)
    }
}

fn refused(error: Invalid) -> PyErr {
    PyValueError::new_err(error.to_string())
}
