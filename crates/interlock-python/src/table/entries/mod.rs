//! The fast paths of the most frequent calls of a table, like those of a queue in [`fast`](crate::fast).
//!
//! Here are the usual forms alone: a key that is a str, an int or bytes, a column by its interned
//! name, a value of the column's very type. Other forms, failures and waits go to the ordinary
//! method or slot of the base class, with the same arguments, which reports them. An entry has then
//! changed nothing: a change that fails leaves the row as it was.
//!
//! The class that users inherit is a subclass with nothing but these: a class that PyO3 makes cannot be given
//! slots of one's own.
//!
//! As in `hot`, PyO3 does not know that the thread is attached: no `Py` is dropped in here.

mod columns;
mod key;
mod rows;

use std::ffi::{c_int, c_uint, c_void, CStr, CString};

use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::types::PyType;
use pyo3::Borrowed;

use super::Table;
use crate::fast::{attached, call_in_full, guarded, replace};
use crate::runtime::once::Once;

/// The base class's own, for whatever is not usual.
struct Ordinary {
    methods: [Py<PyAny>; METHODS.len()],
    subscript: ffi::binaryfunc,
    assign: ffi::objobjargproc,
    contains: ffi::objobjproc,
}

static ORDINARY: Once<Ordinary> = Once::new();

type Entry = ffi::PyCFunctionFastWithKeywords;

/// The methods that are entered here, by their number.
const METHODS: [(&CStr, Entry); 7] = [
    (c"get_column", columns::get_column),
    (c"set_column", columns::set_column),
    (c"incr", columns::incr),
    (c"get", rows::get),
    (c"set", rows::set),
    (c"get_bytes", rows::get_bytes),
    (c"set_bytes", rows::set_bytes),
];
const GET_COLUMN: usize = 0;
const SET_COLUMN: usize = 1;
const INCR: usize = 2;
const GET: usize = 3;
const SET: usize = 4;
const GET_BYTES: usize = 5;
const SET_BYTES: usize = 6;

/// The class as users know it.
pub fn class(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let base = py.get_type::<Table>();
    let mut slots = [
        ffi::PyType_Slot { slot: ffi::Py_mp_subscript, pfunc: rows::subscript as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_mp_ass_subscript, pfunc: rows::assign as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_sq_contains, pfunc: rows::contains as *mut c_void },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let mut spec = ffi::PyType_Spec {
        name: c"interlock._core.Table".as_ptr(),
        // Zero: the base's.
        basicsize: 0,
        itemsize: 0,
        flags: (ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE) as c_uint,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: a valid specification, whose functions are what their slots take.
    let class = unsafe {
        let class = ffi::PyType_FromSpecWithBases(&mut spec, base.as_ptr());
        Bound::from_owned_ptr_or_err(py, class)?
    };
    class.setattr("__doc__", base.getattr("__doc__")?)?;
    let keyed = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
    let mut methods = Vec::with_capacity(METHODS.len());
    for (name, entry) in METHODS {
        let method = base.getattr(name.to_str().unwrap_or_default())?;
        let pointer = ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: entry };
        replace(&class, name, pointer, keyed, doc_of(&method, name)?)?;
        methods.push(method.unbind());
    }
    // SAFETY: slots that PyO3 gives every class with these methods, of the types that they have.
    let ordinary = unsafe {
        Ordinary {
            methods: methods.try_into().map_err(|_| ()).expect("one for each"),
            subscript: std::mem::transmute::<*mut c_void, ffi::binaryfunc>(slot(
                &base,
                ffi::Py_mp_subscript,
            )),
            assign: std::mem::transmute::<*mut c_void, ffi::objobjargproc>(slot(
                &base,
                ffi::Py_mp_ass_subscript,
            )),
            contains: std::mem::transmute::<*mut c_void, ffi::objobjproc>(slot(
                &base,
                ffi::Py_sq_contains,
            )),
        }
    };
    let made = ORDINARY.set(py, ordinary).is_ok();
    assert!(made, "the module is made once");
    Ok(class)
}

fn slot(class: &Bound<'_, PyType>, number: c_int) -> *mut c_void {
    // SAFETY: a heap type, for PyO3 made it.
    let function = unsafe { ffi::PyType_GetSlot(class.as_type_ptr(), number) };
    assert!(!function.is_null(), "PyO3 gives the class its slots");
    function
}

/// A method's signature and docstring, as it carries them itself.
fn doc_of(method: &Bound<'_, PyAny>, name: &CStr) -> PyResult<&'static CStr> {
    let signature: String = method.getattr("__text_signature__")?.extract()?;
    let doc: String = method.getattr("__doc__")?.extract()?;
    let name = name.to_str().unwrap_or_default();
    let doc = CString::new(format!("{name}{signature}\n--\n\n{doc}"))?;
    // A method's docstring must outlive its class, which lives as long as the process.
    Ok(Box::leak(doc.into_boxed_c_str()))
}

/// The arguments of one call.
#[derive(Clone, Copy)]
struct Call {
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
}

impl Call {
    /// The argument with this number; null where it was not given.
    ///
    /// # Safety
    /// The call's arguments live.
    #[inline(always)]
    unsafe fn get(&self, at: Py_ssize_t) -> *mut PyObject {
        match at < self.count {
            // SAFETY: within the arguments.
            true => unsafe { *self.args.add(at as usize) },
            false => std::ptr::null_mut(),
        }
    }

    /// Returns whether this many were given, all by their place.
    #[inline(always)]
    fn has(&self, least: Py_ssize_t, most: Py_ssize_t) -> bool {
        self.names.is_null() && least <= self.count && self.count <= most
    }

    #[cold]
    fn in_full(self, method: usize) -> *mut PyObject {
        attached(|py| {
            let ordinary = ORDINARY.get(py).expect("made with the class");
            let method = ordinary.methods[method].bind(py);
            // SAFETY: the arguments of a call in progress.
            unsafe { call_in_full(method, Some(self.slf), self.args, self.count, self.names) }
        })
    }
}

/// Enters a method: answers by `quick`, or as the ordinary method does.
#[inline(always)]
fn enter(
    method: usize,
    call: Call,
    quick: impl FnOnce(Python<'_>, &Table, Call) -> Option<*mut PyObject>,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter, with the GIL held, on a table.
        let (py, table) = unsafe { (Python::assume_attached(), table_of(call.slf)) };
        match quick(py, table, call) {
            Some(answer) => answer,
            None => call.in_full(method),
        }
    })
}

/// # Safety
/// The object is a table, and lives as long as the answer is used.
#[inline(always)]
unsafe fn table_of<'a>(object: *mut PyObject) -> &'a Table {
    // SAFETY: the caller's; PyO3 lends the inside of a frozen class out as long as its object lives.
    unsafe {
        let py = Python::assume_attached();
        let table = Borrowed::from_ptr(py, object).cast_unchecked::<Table>();
        &*std::ptr::from_ref(table.get())
    }
}
