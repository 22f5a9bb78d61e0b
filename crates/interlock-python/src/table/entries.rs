//! The calls of a table that a program makes most, entered straight from the interpreter, as those of a queue
//! are in [`hot`](crate::hot).
//!
//! Here are the usual forms alone: a key that is a str, an int or bytes, a column by its interned name, a value
//! of the column's very type. What is anything else, what fails, and what would wait goes to the ordinary
//! method or slot of the base class, with the same arguments, and is told there. An entry has then changed
//! nothing: a change that fails leaves the row as it was.
//!
//! The class that users inherit is a subclass with nothing but these: a class that PyO3 makes cannot be given
//! slots of one's own.
//!
//! As in `hot`, PyO3 does not know that the thread is attached: no `Py` is dropped in here.

use std::ffi::{c_int, c_uint, c_void, CStr, CString};

use interlock_table::{By, Kind, Overflow, Ttl, Where};
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use pyo3::Borrowed;

use super::columns::{self, plain, whole};
use super::{Table, Words};
use crate::convert;
use crate::hot::{attached, call_in_full, guarded, or_raised, replace, unpanicked};

/// The base class's own, for whatever is not usual.
struct Ordinary {
    methods: [Py<PyAny>; METHODS.len()],
    subscript: ffi::binaryfunc,
    assign: ffi::objobjargproc,
    contains: ffi::objobjproc,
}

static ORDINARY: PyOnceLock<Ordinary> = PyOnceLock::new();

type Entry = ffi::PyCFunctionFastWithKeywords;

/// The methods that are entered here, by their number.
const METHODS: [(&CStr, Entry); 7] = [
    (c"get_column", get_column),
    (c"set_column", set_column),
    (c"incr", incr),
    (c"get", get),
    (c"set", set),
    (c"get_bytes", get_bytes),
    (c"set_bytes", set_bytes),
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
        ffi::PyType_Slot { slot: ffi::Py_mp_subscript, pfunc: subscript as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_mp_ass_subscript, pfunc: assign as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_sq_contains, pfunc: contains as *mut c_void },
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

    /// Returns whether so many were given, all by their place.
    #[inline(always)]
    fn has(&self, least: Py_ssize_t, most: Py_ssize_t) -> bool {
        self.names.is_null() && least <= self.count && self.count <= most
    }

    #[cold]
    fn in_full(&self, method: usize) -> *mut PyObject {
        attached(|py| {
            let ordinary = ORDINARY.get(py).expect("made with the class");
            let method = ordinary.methods[method].bind(py);
            // SAFETY: the arguments of a call that goes on.
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
        quick(py, table, call).unwrap_or_else(|| call.in_full(method))
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

/// Calls with the bytes of a key that is a str, bytes or an int, and of no subclass. `None`: look closer.
///
/// # Safety
/// The caller has the object, and is attached; `call` runs no Python code.
#[inline(always)]
unsafe fn with_quick_key<R>(
    py: Python<'_>,
    key: *mut PyObject,
    call: impl FnOnce(&[u8]) -> Option<R>,
) -> Option<R> {
    // SAFETY: the caller's.
    unsafe {
        if let Some(bytes) = convert::quick_bytes(Borrowed::from_ptr(py, key)) {
            return call(bytes);
        }
        if let Some(number) = whole(key) {
            return call(convert::decimal(number, &mut [0; 20]));
        }
        if ffi::PyBytes_CheckExact(key) != 0 {
            let (start, length) = (ffi::PyBytes_AsString(key), ffi::PyBytes_Size(key));
            return call(std::slice::from_raw_parts(start.cast(), length as usize));
        }
        None
    }
}

/// A new reference to an object.
///
/// # Safety
/// The caller has the object, and is attached.
#[inline(always)]
unsafe fn new_reference(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller's.
    unsafe { ffi::Py_NewRef(object) }
}

unsafe extern "C" fn get_column(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(GET_COLUMN, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 3) {
            return None;
        }
        // SAFETY: as many arguments were given, which live as long as the call.
        unsafe {
            let column = table.known_column(call.get(1))?;
            if !column.kind.is_sized() {
                let found =
                    with_quick_key(py, call.get(0), |key| table.hasty.get_word(key, column).ok())?;
                return match found {
                    Some(word) => {
                        Some(or_raised(py, columns::number(py, column, word).map(Bound::into_ptr)))
                    }
                    None => (!call.get(2).is_null()).then(|| new_reference(call.get(2))),
                };
            }
            let mut words = Words::from_elem(0, column.words().len());
            let there = with_quick_key(py, call.get(0), |key| {
                table.hasty.get_words(key, column.words(), &mut words).ok()
            })?;
            match there {
                true => {
                    Some(or_raised(py, columns::value_of(py, column, &words).map(Bound::into_ptr)))
                }
                false => (!call.get(2).is_null()).then(|| new_reference(call.get(2))),
            }
        }
    })
}

unsafe extern "C" fn set_column(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(SET_COLUMN, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(3, 3) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let column = table.known_column(call.get(1))?;
            let value = plain(column, Borrowed::from_ptr(py, call.get(2)))?;
            let there = with_quick_key(py, call.get(0), |key| {
                table.hasty.set_column(key, column, &value).ok()
            })?;
            there.then(|| new_reference(ffi::Py_None()))
        }
    })
}

unsafe extern "C" fn incr(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(INCR, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 3) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let column = table.known_column(call.get(1))?;
            if matches!(column.kind, Kind::F32 | Kind::F64) || column.kind.is_sized() {
                return None;
            }
            let by = match call.get(2) {
                by if by.is_null() => 1,
                by => whole(by)?,
            };
            let sum = with_quick_key(py, call.get(0), |key| {
                table.hasty.incr(key, column, By::Integer(by.into()), Overflow::Refuse).ok()?
            })?;
            Some(or_raised(py, columns::object(py, sum).map(Bound::into_ptr)))
        }
    })
}

unsafe extern "C" fn get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(GET, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(1, 2) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let found = row_of(py, table, call.get(0))?;
            Some(found.unwrap_or_else(|| default_of(call)))
        }
    })
}

unsafe extern "C" fn set(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(SET, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 2) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            write(py, table, call.get(0), call.get(1))?;
            Some(new_reference(ffi::Py_True()))
        }
    })
}

unsafe extern "C" fn get_bytes(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(GET_BYTES, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(1, 2) {
            return None;
        }
        let schema = table.patient.schema();
        let mut words = Words::from_elem(0, schema.words());
        // SAFETY: as in `get_column`.
        unsafe {
            let there =
                with_quick_key(py, call.get(0), |key| table.hasty.get_into(key, &mut words).ok())?;
            if !there {
                return Some(default_of(call));
            }
            // No more than a row can have.
            Some(schema.with_bytes(&words, |row| {
                ffi::PyBytes_FromStringAndSize(row.as_ptr().cast(), row.len() as Py_ssize_t)
            }))
        }
    })
}

unsafe extern "C" fn set_bytes(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    enter(SET_BYTES, Call { slf, args, count, names }, |py, table, call| {
        if !call.has(2, 2) {
            return None;
        }
        // SAFETY: as in `get_column`.
        unsafe {
            let row = call.get(1);
            if ffi::PyBytes_CheckExact(row) == 0 {
                return None;
            }
            let (start, length) = (ffi::PyBytes_AsString(row), ffi::PyBytes_Size(row));
            let row = std::slice::from_raw_parts(start.cast(), length as usize);
            let schema = table.patient.schema();
            let mut words = Words::from_elem(0, schema.words());
            schema.fill(&mut words, row).ok()?;
            with_quick_key(py, call.get(0), |key| {
                table.hasty.write(key, &words, Ttl::Usual, Where::Anywhere).ok()
            })?;
            Some(new_reference(ffi::Py_None()))
        }
    })
}

/// The second argument, or None.
///
/// # Safety
/// As `Call::get`.
unsafe fn default_of(call: Call) -> *mut PyObject {
    // SAFETY: the caller's.
    unsafe {
        match call.get(1) {
            default if default.is_null() => new_reference(ffi::Py_None()),
            default => new_reference(default),
        }
    }
}

/// A row, null with an exception if it cannot be made, or `Some(None)` where there is none.
///
/// # Safety
/// The caller has the key, and is attached.
#[inline(always)]
unsafe fn row_of(
    py: Python<'_>,
    table: &Table,
    key: *mut PyObject,
) -> Option<Option<*mut PyObject>> {
    let mut words = Words::from_elem(0, table.patient.schema().words());
    // SAFETY: the caller's.
    let there =
        unsafe { with_quick_key(py, key, |key| table.hasty.get_into(key, &mut words).ok()) }?;
    Some(there.then(|| or_raised(py, table.made(py, &words).map(Bound::into_ptr))))
}

/// Sets a row. `None`: look closer.
///
/// # Safety
/// The caller has the objects, and is attached.
#[inline(always)]
unsafe fn write(
    py: Python<'_>,
    table: &Table,
    key: *mut PyObject,
    row: *mut PyObject,
) -> Option<()> {
    // SAFETY: the caller's.
    unsafe {
        let words = table.rows(py).quick_words(py, &table.patient, Borrowed::from_ptr(py, row))?;
        with_quick_key(py, key, |key| {
            table.hasty.write(key, &words, Ttl::Usual, Where::Anywhere).ok()
        })
        .map(drop)
    }
}

unsafe extern "C" fn subscript(slf: *mut PyObject, key: *mut PyObject) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter, with the GIL held, on a table.
        unsafe {
            let (py, table) = (Python::assume_attached(), table_of(slf));
            match row_of(py, table, key) {
                Some(Some(row)) => row,
                _ => (ORDINARY.get(py).expect("made with the class").subscript)(slf, key),
            }
        }
    })
}

unsafe extern "C" fn assign(slf: *mut PyObject, key: *mut PyObject, row: *mut PyObject) -> c_int {
    unpanicked(|| {
        // SAFETY: as in `subscript`; no row is a deletion.
        unsafe {
            let (py, table) = (Python::assume_attached(), table_of(slf));
            match if row.is_null() { None } else { write(py, table, key, row) } {
                Some(()) => 0,
                None => (ORDINARY.get(py).expect("made with the class").assign)(slf, key, row),
            }
        }
    })
    .unwrap_or(-1)
}

unsafe extern "C" fn contains(slf: *mut PyObject, key: *mut PyObject) -> c_int {
    unpanicked(|| {
        // SAFETY: as in `subscript`.
        unsafe {
            let (py, table) = (Python::assume_attached(), table_of(slf));
            match with_quick_key(py, key, |key| table.hasty.contains(key).ok()) {
                Some(there) => c_int::from(there),
                None => (ORDINARY.get(py).expect("made with the class").contains)(slf, key),
            }
        }
    })
    .unwrap_or(-1)
}
