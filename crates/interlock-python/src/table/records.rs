//! Rows as objects of the user's class: made of a row's words, and read into them.
//!
//! A row's class is a msgspec Struct. To call it costs two thirds of a read: CPython 3.11 calls a
//! class whose metaclass is written in Python with a dict of its keywords. So where nothing of the
//! class's own would run, the object is allocated as `object.__new__` does, and each column is
//! stored through its slot; read back they are by the same slots. A class with `__post_init__`,
//! `__new__` or `__init__`, or one whose columns are not slots, is called, and a subclass is asked
//! for its attributes.

use std::ffi::c_void;

use interlock_table::{Column, Table as Shared};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use pyo3::Borrowed;
use smallvec::SmallVec;

use super::{columns, failure};

/// Facts of the class of rows, once the columns are known.
pub struct Rows {
    class: Py<PyType>,
    /// Creates a row from the values of its columns.
    make: Py<PyAny>,
    /// Returns the values of a row's columns, as a tuple.
    values: Py<PyAny>,
    /// The columns' slots; empty where the class is to be called.
    slots: Vec<Slot>,
    /// True if the collector follows objects of the class: not of one made with `gc=False`.
    followed: bool,
}

/// An object's place for a column: a slot's descriptor, and how that is read and written.
struct Slot {
    descriptor: Py<PyAny>,
    get: ffi::descrgetfunc,
    set: ffi::descrsetfunc,
}

impl Rows {
    pub fn new(
        class: Bound<'_, PyType>,
        make: Py<PyAny>,
        values: Py<PyAny>,
        names: &[Py<PyString>],
    ) -> PyResult<Rows> {
        let slots = slots(&class, names)?.unwrap_or_default();
        // SAFETY: a type, which the caller has.
        let flags = unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) };
        let followed = flags & ffi::Py_TPFLAGS_HAVE_GC != 0;
        Ok(Rows { class: class.unbind(), make, values, slots, followed })
    }

    pub fn class<'py>(&self, py: Python<'py>) -> Bound<'py, PyType> {
        self.class.bind(py).clone()
    }

    /// A row of its words.
    #[inline]
    pub fn made<'py>(
        &self,
        py: Python<'py>,
        columns: &[Column],
        words: &[u64],
    ) -> PyResult<Bound<'py, PyAny>> {
        if self.slots.is_empty() {
            return self.called(py, columns, words);
        }
        let class = self.class.as_ptr();
        // SAFETY: the class is a heap type whose objects are complete as allocated, as `slots` has seen: all
        // of a Struct is its slots. Each is given an object of its own by the descriptor of that class.
        unsafe {
            let row = Bound::from_owned_ptr_or_err(py, ffi::PyType_GenericAlloc(class.cast(), 0))?;
            // Numbers and texts alone: nothing that the collector would have to follow.
            if self.followed {
                ffi::PyObject_GC_UnTrack(row.as_ptr().cast::<c_void>());
            }
            for (slot, column) in self.slots.iter().zip(columns) {
                let value = columns::value(py, column, words)?;
                if (slot.set)(slot.descriptor.as_ptr(), row.as_ptr(), value.as_ptr()) != 0 {
                    return Err(PyErr::fetch(py));
                }
            }
            Ok(row)
        }
    }

    fn called<'py>(
        &self,
        py: Python<'py>,
        columns: &[Column],
        words: &[u64],
    ) -> PyResult<Bound<'py, PyAny>> {
        let values = columns.iter().map(|column| columns::value(py, column, words));
        let values = values.collect::<PyResult<SmallVec<[_; 16]>>>()?;
        self.make.bind(py).call1(PyTuple::new(py, values)?)
    }

    /// Fills the words of a row of the very class, whose values are of the very types. `None`: look closer.
    #[inline]
    pub fn quick_fill(
        &self,
        py: Python<'_>,
        table: &Shared,
        row: Borrowed<'_, '_, PyAny>,
        words: &mut [u64],
    ) -> Option<()> {
        let class = self.class.as_ptr();
        // SAFETY: every object has a type, which lives as long as it.
        let same = unsafe { ffi::Py_TYPE(row.as_ptr()) }.cast() == class;
        if !same || self.slots.is_empty() {
            return None;
        }
        for (slot, column) in self.slots.iter().zip(table.schema().columns()) {
            // SAFETY: the slot is one of the class of this very object.
            let value = unsafe { (slot.get)(slot.descriptor.as_ptr(), row.as_ptr(), class) };
            if value.is_null() {
                // SAFETY: attached; the ordinary way says the same of a row that lacks a column.
                unsafe { ffi::PyErr_Clear() };
                return None;
            }
            // SAFETY: a reference of our own.
            let value = unsafe { Bound::from_owned_ptr(py, value) };
            column.write(words, &columns::plain(column, value.as_borrowed())?).ok()?;
        }
        Some(())
    }

    /// Fills the words of a row: all of each column, whatever is there before.
    #[inline]
    pub fn fill(
        &self,
        py: Python<'_>,
        table: &Shared,
        row: &Bound<'_, PyAny>,
        words: &mut [u64],
    ) -> PyResult<()> {
        if self.quick_fill(py, table, row.as_borrowed(), words).is_some() {
            return Ok(());
        }
        let columns = table.schema().columns();
        let class = self.class.bind(py);
        if !row.is_instance(class)? {
            let name = class.qualname()?;
            return Err(crate::runtime::errors::wrong_type(
                "the row",
                row,
                &name.to_string_lossy(),
            ));
        }
        let values = self.values.bind(py).call1((row,))?;
        let values = values
            .cast_into::<PyTuple>()
            .map_err(|_| PyTypeError::new_err("the values of a row are not a tuple"))?;
        for (column, value) in columns.iter().zip(values.iter_borrowed()) {
            write(py, column, words, &value)?;
        }
        Ok(())
    }
}

fn write(
    py: Python<'_>,
    column: &Column,
    words: &mut [u64],
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let value = columns::given(column, value)?;
    column.write(words, &value).map_err(|error| failure::raised(py, error))
}

/// The slots of a class's columns; `None` if it is to be called.
fn slots(class: &Bound<'_, PyType>, names: &[Py<PyString>]) -> PyResult<Option<Vec<Slot>>> {
    let py = class.py();
    let plain = py.import("msgspec")?.getattr("Struct")?;
    for own in ["__new__", "__init__", "__post_init__"] {
        match (class.getattr_opt(own)?, plain.getattr_opt(own)?) {
            (Some(own), Some(plain)) if own.is(&plain) => {}
            (None, None) => {}
            _ => return Ok(None),
        }
    }
    let member = py.import("types")?.getattr("MemberDescriptorType")?;
    let lookup = py.import("inspect")?.getattr("getattr_static")?;
    let mut slots = Vec::with_capacity(names.len());
    for name in names {
        let descriptor = lookup.call1((class, name))?;
        if !descriptor.get_type().is(&member) {
            return Ok(None);
        }
        // SAFETY: a type of the interpreter's own, whose objects are read and written by these.
        let (get, set) = unsafe {
            let of = |slot| ffi::PyType_GetSlot(descriptor.get_type_ptr(), slot);
            let (get, set) = (of(ffi::Py_tp_descr_get), of(ffi::Py_tp_descr_set));
            if get.is_null() || set.is_null() {
                return Ok(None);
            }
            (
                std::mem::transmute::<*mut c_void, ffi::descrgetfunc>(get),
                std::mem::transmute::<*mut c_void, ffi::descrsetfunc>(set),
            )
        };
        slots.push(Slot { descriptor: descriptor.unbind(), get, set });
    }
    Ok(Some(slots))
}
