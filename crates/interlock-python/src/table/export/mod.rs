//! All rows at once, for programs that look at columns: an Arrow stream by PyCapsules, records for NumPy.
//!
//! The stream may be read from any thread, without the GIL: only the table's words are read, and
//! nothing of Python's.

mod abi;
mod batch;

use std::any::Any;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use interlock_table::Table as Shared;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use abi::{ArrowArray, ArrowArrayStream, ArrowSchema};
use batch::Wanted;

use super::scan::{alone, Scanning};
use super::Table;

const SCHEMA: &CStr = c"arrow_schema";
const STREAM: &CStr = c"arrow_array_stream";

/// A view of a table's rows: each stream of it goes over them anew.
#[pyclass(frozen, module = "interlock._core")]
pub struct TableExport {
    table: Shared,
    wanted: Arc<Wanted>,
    records: Mutex<Scanning>,
}

#[pymethods]
impl Table {
    /// Rows as another program's columns; of the table's columns those named, in that order.
    fn _export(
        &self,
        key: String,
        text_keys: bool,
        columns: Vec<Bound<'_, PyAny>>,
        expiry: Option<String>,
    ) -> PyResult<TableExport> {
        let columns = columns.iter().map(|name| self.column(name).cloned());
        let columns = columns.collect::<PyResult<_>>()?;
        let table = self.patient.with_patience(Duration::ZERO);
        let records = Mutex::new(Scanning::new(&table));
        let wanted = Arc::new(Wanted { key, text_keys, columns, expiry });
        Ok(TableExport { table, wanted, records })
    }
}

#[pymethods]
impl TableExport {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        capsule(py, self.wanted.schema(), SCHEMA, drop_schema)
    }

    /// A stream of batches. A schema that is asked for is not looked at: readers cast what they get.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        drop(requested_schema);
        let scanning = Scanning::new(&self.table);
        let reading = Reading { wanted: self.wanted.clone(), scanning, error: CString::default() };
        let stream = ArrowArrayStream {
            get_schema: Some(get_schema),
            get_next: Some(get_next),
            get_last_error: Some(get_last_error),
            release: Some(release),
            private_data: Box::into_raw(Box::new(reading)).cast(),
        };
        capsule(py, stream, STREAM, drop_stream)
    }

    /// The next rows as packed records, and how many they are: 0 at the end.
    fn _records<'py>(&self, py: Python<'py>) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        let next = py.detach(|| Ok::<_, PyErr>(alone(&self.records)?.records(&self.wanted)));
        let (count, bytes) = next?.map_err(PyValueError::new_err)?;
        Ok((count, PyBytes::new(py, &bytes)))
    }
}

/// A stream, as far as it was read.
struct Reading {
    wanted: Arc<Wanted>,
    scanning: Scanning,
    error: CString,
}

/// SAFETY: as the interface says: a stream that was not released, and room for a schema.
unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: by the caller's promise. Its private data are the reading that it was made with, and no other
    // call on this stream is under way.
    let reading = unsafe { &mut *(*stream).private_data.cast::<Reading>() };
    let schema = catch_unwind(AssertUnwindSafe(|| reading.wanted.schema()));
    match schema {
        Ok(schema) => {
            // SAFETY: by the caller's promise. What lies there is nothing that would have to be released.
            unsafe { ptr::write(out, schema) };
            0
        }
        Err(panic) => reading.failed(panicked(&*panic)),
    }
}

/// SAFETY: as the interface says: a stream that was not released, and room for an array.
unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as in `get_schema`.
    let reading = unsafe { &mut *(*stream).private_data.cast::<Reading>() };
    let next = catch_unwind(AssertUnwindSafe(|| reading.scanning.arrow(&reading.wanted)));
    match next.unwrap_or_else(|panic| Err(panicked(&*panic))) {
        Ok(batch) => {
            // SAFETY: as in `get_schema`.
            unsafe { ptr::write(out, batch.unwrap_or_else(ArrowArray::none)) };
            0
        }
        Err(why) => reading.failed(why),
    }
}

/// SAFETY: as the interface says: a stream that was not released.
unsafe extern "C" fn get_last_error(stream: *mut ArrowArrayStream) -> *const c_char {
    // SAFETY: as in `get_schema`. The text stays until the next call.
    unsafe { (*(*stream).private_data.cast::<Reading>()).error.as_ptr() }
}

/// SAFETY: as the interface says: a stream that was not released.
unsafe extern "C" fn release(stream: *mut ArrowArrayStream) {
    // SAFETY: as in `get_schema`; it was boxed when the stream was made.
    unsafe {
        (*stream).release = None;
        drop(Box::from_raw((*stream).private_data.cast::<Reading>()));
    }
}

impl Reading {
    fn failed(&mut self, why: String) -> c_int {
        self.error = CString::new(why.replace('\0', "")).unwrap_or_default();
        libc::EINVAL
    }
}

fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("the export failed: {}", text.unwrap_or("a panic"))
}

/// A capsule that owns a structure, until somebody moves it out.
fn capsule<'py, T>(
    py: Python<'py>,
    held: T,
    name: &'static CStr,
    destructor: unsafe extern "C" fn(*mut pyo3::ffi::PyObject),
) -> PyResult<Bound<'py, PyAny>> {
    let pointer = Box::into_raw(Box::new(held)).cast::<c_void>();
    // SAFETY: the pointer is not null, the name is static, and a capsule is a new reference or null with an
    // exception set.
    unsafe {
        let made = pyo3::ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destructor));
        Bound::from_owned_ptr_or_err(py, made)
    }
}

/// SAFETY: to be called by Python with a capsule that holds a boxed schema.
unsafe extern "C" fn drop_schema(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: by the caller's promise. Moving it out has left it without a release.
    unsafe {
        let held = pyo3::ffi::PyCapsule_GetPointer(capsule, SCHEMA.as_ptr()).cast::<ArrowSchema>();
        if let Some(release) = (*held).release {
            release(held);
        }
        drop(Box::from_raw(held));
    }
}

/// SAFETY: to be called by Python with a capsule that holds a boxed stream.
unsafe extern "C" fn drop_stream(capsule: *mut pyo3::ffi::PyObject) {
    // SAFETY: as of `drop_schema`.
    unsafe {
        let held = pyo3::ffi::PyCapsule_GetPointer(capsule, STREAM.as_ptr());
        let held = held.cast::<ArrowArrayStream>();
        if let Some(release) = (*held).release {
            release(held);
        }
        drop(Box::from_raw(held));
    }
}
