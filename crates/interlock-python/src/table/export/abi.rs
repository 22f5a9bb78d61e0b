//! The Arrow C data and stream interfaces: their structures, filled from plain buffers.
//!
//! The receiver owns a structure, may move it, and calls its `release` once. A structure without
//! `release` has been released, or its content was moved elsewhere.

use std::ffi::{c_char, c_int, c_void, CString};
use std::ptr;

#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    pub release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct ArrowArrayStream {
    pub get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    pub get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    pub get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    pub release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    pub private_data: *mut c_void,
}

const NULLABLE: i64 = 2;

/// Parts that a schema's pointers point to.
struct SchemaParts {
    format: CString,
    name: CString,
    children: Vec<*mut ArrowSchema>,
}

impl ArrowSchema {
    /// A field, of the format that the interface has for its type. What has a zero is called nothing.
    pub fn field(format: &str, name: &str, nullable: bool) -> ArrowSchema {
        ArrowSchema::new(format, name, if nullable { NULLABLE } else { 0 }, Vec::new())
    }

    /// A record of fields: what a stream's batches are.
    pub fn record(fields: Vec<ArrowSchema>) -> ArrowSchema {
        ArrowSchema::new("+s", "", 0, fields)
    }

    fn new(format: &str, name: &str, flags: i64, children: Vec<ArrowSchema>) -> ArrowSchema {
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        let (format, name) =
            (CString::new(format).unwrap_or_default(), CString::new(name).unwrap_or_default());
        // In its place before pointers into it are taken.
        let parts = Box::leak(Box::new(SchemaParts { format, name, children }));
        ArrowSchema {
            format: parts.format.as_ptr(),
            name: parts.name.as_ptr(),
            metadata: ptr::null(),
            flags,
            n_children: parts.children.len() as i64,
            children: parts.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release_schema),
            private_data: ptr::from_mut(parts).cast(),
        }
    }
}

/// SAFETY: to be called with a structure that `ArrowSchema::new` made and that was not released.
unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: by the caller's promise it is valid, and its private data are the parts that `new` leaked.
    let parts = unsafe {
        (*schema).release = None;
        Box::from_raw((*schema).private_data.cast::<SchemaParts>())
    };
    for child in parts.children {
        // SAFETY: `new` boxed it. A child that was moved away has no release.
        unsafe {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
    }
}

/// A buffer as the interface asks for it: on an address that any number may have.
pub struct Buffer(Vec<u64>);

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Buffer {
        // At least one word: not every reader accepts a buffer without bytes.
        let mut words = vec![0_u64; bytes.len().div_ceil(8).max(1)];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(eight);
        }
        Buffer(words)
    }
}

/// Parts that an array's pointers point to.
struct ArrayParts {
    #[allow(dead_code)] // Held for those who read them.
    held: Vec<Option<Buffer>>,
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
}

impl ArrowArray {
    /// A column of `length` values. The first buffer has a bit for each value that is present;
    /// without it all are.
    pub fn column(length: usize, nulls: usize, buffers: Vec<Option<Buffer>>) -> ArrowArray {
        ArrowArray::new(length, nulls, buffers, Vec::new())
    }

    /// A batch of `length` records.
    pub fn record(length: usize, columns: Vec<ArrowArray>) -> ArrowArray {
        ArrowArray::new(length, 0, vec![None], columns)
    }

    /// The array that a stream gives at its end.
    pub fn none() -> ArrowArray {
        ArrowArray {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: ptr::null_mut(),
            children: ptr::null_mut(),
            dictionary: ptr::null_mut(),
            release: None,
            private_data: ptr::null_mut(),
        }
    }

    fn new(
        length: usize,
        nulls: usize,
        held: Vec<Option<Buffer>>,
        children: Vec<ArrowArray>,
    ) -> ArrowArray {
        let address = |buffer: &Option<Buffer>| {
            buffer.as_ref().map_or(ptr::null(), |buffer| buffer.0.as_ptr().cast::<c_void>())
        };
        let buffers = held.iter().map(address).collect();
        let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
        // In its place before pointers into it are taken.
        let parts = Box::leak(Box::new(ArrayParts { held, buffers, children }));
        ArrowArray {
            length: length as i64,
            null_count: nulls as i64,
            offset: 0,
            n_buffers: parts.buffers.len() as i64,
            n_children: parts.children.len() as i64,
            buffers: parts.buffers.as_mut_ptr(),
            children: parts.children.as_mut_ptr(),
            dictionary: ptr::null_mut(),
            release: Some(release_array),
            private_data: ptr::from_mut(parts).cast(),
        }
    }
}

/// SAFETY: to be called with a structure that `ArrowArray::new` made and that was not released.
unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: by the caller's promise it is valid, and its private data are the parts that `new` leaked.
    let parts = unsafe {
        (*array).release = None;
        Box::from_raw((*array).private_data.cast::<ArrayParts>())
    };
    for child in parts.children {
        // SAFETY: `new` boxed it. A child that was moved away has no release.
        unsafe {
            if let Some(release) = (*child).release {
                release(child);
            }
            drop(Box::from_raw(child));
        }
    }
}
