//! Leases used again: one is made and dropped for every message, which by the ordinary ways of making
//! and freeing an object costs as much as the queue does.
//!
//! Each class of leases has a subclass without anything of its own, of which all its objects are; it
//! says how they are freed. A lease that was settled is emptied and kept for the next message, with its
//! memory and type as they are; every other end (a lease dropped without a word, one whose context is
//! still set) goes the ordinary way.
//!
//! Benefit: a `put`, `get` and `ack` of one key take 311 ns, 360 with a lease made anew each time;
//! 438 and 477 where they are awaited. Measured as in [`hot`](crate::fast).

use std::ffi::{c_uint, c_void, CStr};

use pyo3::ffi::{self, destructor, PyObject, PyTypeObject};
use pyo3::prelude::*;
use pyo3::types::PyType;

use crate::queue::lease::Lease;
use crate::runtime::gil::GilCell;
use crate::runtime::nesting;
use crate::runtime::nesting::Late;
use crate::runtime::once::Once;

/// Most leases kept of a class.
const KEPT: usize = 64;

/// The store of the leases of one class, and how they are freed otherwise.
pub struct Recycler {
    name: &'static CStr,
    dealloc: destructor,
    /// Adds methods to the subclass: the interpreter finds a method fastest in the object's own class.
    install: fn(&Bound<'_, PyAny>) -> PyResult<()>,
    class: Once<Class>,
    free: GilCell<Vec<*mut PyObject>>,
}

// SAFETY: the pointers are used with the GIL held only.
unsafe impl Sync for Recycler {}

struct Class {
    /// The subclass.
    leaf: *mut PyTypeObject,
    free: destructor,
}

/// The place in an object where PyO3 lays a class's own fields: behind the head.
const OFFSET: usize = std::mem::size_of::<PyObject>();
/// The place of a lease's payload.
pub(in crate::fast) const PAYLOAD: usize = OFFSET + std::mem::offset_of!(Lease, payload);

// SAFETY: a type that lives as long as the process, and a function.
unsafe impl Send for Class {}
// SAFETY: as above.
unsafe impl Sync for Class {}

impl Recycler {
    /// `dealloc` calls this one's `take`, with a function that calls `free`.
    pub const fn new(
        name: &'static CStr,
        dealloc: destructor,
        install: fn(&Bound<'_, PyAny>) -> PyResult<()>,
    ) -> Self {
        Recycler { name, dealloc, install, class: Once::new(), free: GilCell::new(Vec::new()) }
    }

    /// An object that holds `lease`, one used before or one that `make` makes.
    #[inline]
    pub fn give<'py>(
        &self,
        py: Python<'py>,
        lease: Lease,
        make: impl FnOnce(Lease) -> PyResult<Bound<'py, Lease>>,
    ) -> PyResult<Bound<'py, Lease>> {
        let class = self.class.get(py).expect("leases are made once the module is");
        if let Some(kept) = self.free.with_mut(py, Vec::pop) {
            // SAFETY: `kept` is memory of an object of `leaf`, empty, with no other reference and
            // unknown to the collector; it is complete before the collector is notified.
            unsafe {
                kept.byte_add(OFFSET).cast::<Lease>().write(lease);
                ffi::PyObject_Init(kept, class.leaf);
                ffi::PyObject_GC_Track(kept.cast());
                return Ok(Bound::from_owned_ptr(py, kept).cast_into_unchecked());
            }
        }
        let object = make(lease)?;
        let lies = std::ptr::from_ref(object.get()) as usize - object.as_ptr() as usize;
        assert_eq!(lies, OFFSET, "PyO3 lays out its objects in another way");
        // SAFETY: a new object, whose type's memory layout `leaf` has; the reference that it held to
        // its own type is given back, and `PyObject_Init` takes one to `leaf`. The collector must not
        // know it then, for a count of one is written anew.
        unsafe {
            let object = object.into_ptr();
            ffi::PyObject_GC_UnTrack(object.cast());
            ffi::Py_DECREF(ffi::Py_TYPE(object).cast());
            ffi::PyObject_Init(object, class.leaf);
            ffi::PyObject_GC_Track(object.cast());
            Ok(Bound::from_owned_ptr(py, object).cast_into_unchecked())
        }
    }

    /// Takes an object when nobody refers to it any more; the subclass calls this.
    ///
    /// # Safety
    /// As for `tp_dealloc`, of an object that `give` made.
    #[inline]
    pub unsafe fn take(&self, object: *mut PyObject, free: unsafe fn(*mut PyObject)) {
        // SAFETY: called by the interpreter, with the GIL held.
        let py = unsafe { Python::assume_attached() };
        if nesting::is_deep(py) {
            // SAFETY: an object that the collector knows, and from here on does not.
            unsafe { ffi::PyObject_GC_UnTrack(object.cast()) };
            return nesting::later(py, Late::Object(object, free));
        }
        // SAFETY: the caller's.
        nesting::nested(py, || unsafe { self.free(object) });
    }

    /// Frees an object, or keeps it to be used again.
    ///
    /// # Safety
    /// As for `take`.
    #[inline]
    pub unsafe fn free(&self, object: *mut PyObject) {
        // SAFETY: called by the interpreter, with the GIL held.
        let py = unsafe { Python::assume_attached() };
        let Some(class) = self.class.get(py) else { return };
        // SAFETY: nobody refers to the object: its lease may be taken out, once.
        unsafe {
            let lease = object.byte_add(OFFSET).cast::<Lease>();
            if !(*lease).can_be_recycled(py) {
                return (class.free)(object);
            }
            ffi::PyObject_GC_UnTrack(object.cast());
            let leaf = ffi::Py_TYPE(object);
            // Runs foreign code, the payload's destructor, which may come back here for other leases.
            Lease::drop_settled(lease.read(), py);
            // Looked at again, for each of those came here before this one.
            if self.free.with(py, Vec::len) < KEPT {
                self.free.with_mut(py, |free| free.push(object));
            } else {
                ffi::PyObject_GC_Del(object.cast());
            }
            ffi::Py_DECREF(leaf.cast());
        }
    }

    /// Creates the subclass of `base`: the public class.
    pub fn class<'py>(&self, base: &Bound<'py, PyType>) -> PyResult<Bound<'py, PyAny>> {
        let py = base.py();
        let mut slots = [
            ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: self.dealloc as *mut c_void },
            ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
        ];
        let mut spec = ffi::PyType_Spec {
            name: self.name.as_ptr(),
            // Zero, and no traverse or clear: the base's.
            basicsize: 0,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: a valid specification; the slot is that of a type that PyO3 made, which is never null.
        let (leaf, free) = unsafe {
            let leaf = ffi::PyType_FromSpecWithBases(&mut spec, base.as_ptr());
            let free = ffi::PyType_GetSlot(base.as_type_ptr(), ffi::Py_tp_dealloc);
            let free = std::mem::transmute::<*mut c_void, destructor>(free);
            (Bound::from_owned_ptr_or_err(py, leaf)?, free)
        };
        leaf.setattr("__doc__", base.getattr("__doc__")?)?;
        (self.install)(&leaf)?;
        let class = Class { leaf: leaf.clone().into_ptr().cast(), free };
        let made = self.class.set(py, class).is_ok();
        assert!(made, "the module is made once");
        Ok(leaf)
    }
}
