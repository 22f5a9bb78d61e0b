//! Copies a hub's journal from its folder, for Python.

use std::path::PathBuf;

use interlock_hub::journal::copy::{self, Copy};
use interlock_hub::journal::disk::Disk;
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

#[pyclass(module = "interlock._core", frozen)]
pub struct JournalCopy(Copy<std::fs::File>);

#[pymethods]
impl JournalCopy {
    /// Opens all of it, and reads it once: what is damaged is refused.
    #[new]
    fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let copied = py.detach(|| copy::of(&Disk::read(&folder)?));
        copied.map(JournalCopy).map_err(failed)
    }

    /// Number of the last record in it.
    #[getter]
    fn last(&self) -> u64 {
        self.0.last()
    }

    /// For each file its name, the number of bytes to copy, and its length.
    #[getter]
    fn files(&self) -> Vec<(String, u64, u64)> {
        self.0.parts().iter().map(|part| (part.name.clone(), part.bytes, part.length)).collect()
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        file: usize,
        offset: u64,
        count: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Some(part) = self.0.parts().get(file) else {
            let count = self.0.parts().len();
            let text = format!("read(): file is {file}; allowed: 0 to {}", count - 1);
            return Err(PyIndexError::new_err(text));
        };
        let bytes = py.detach(|| self.0.read(part, offset, count)).map_err(failed)?;
        Ok(PyBytes::new(py, &bytes))
    }
}

fn failed(error: std::io::Error) -> PyErr {
    match error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, error.to_string())),
        None => PyOSError::new_err(error.to_string()),
    }
}
