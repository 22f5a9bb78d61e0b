//! The fast paths of `put` and `get` of a queue, and of `ack` of a lease.

use std::ptr::null_mut;

use interlock_core::key::KeyRef;
use interlock_core::queue::scheduler::{Grant, Put};
use interlock_core::queue::types::Kind;
use pyo3::ffi::{self, PyObject, Py_ssize_t};
use pyo3::prelude::*;
use pyo3::Borrowed;

use super::arguments::{
    find_arguments, named_arguments, usual_arguments, Known, BLOCK, GROUP, KEYS, LIMIT, PAYLOAD,
    TIMEOUT,
};
use super::{attached, give_back, guarded, in_full, or_raised, said};
use crate::queue::arguments::quick_name;
use crate::queue::lease::Lease;
use crate::queue::wait;
use crate::queue::Queue;
use crate::runtime::convert;
use crate::runtime::convert::Truth;

pub(in crate::fast) const PUT_DOC: &std::ffi::CStr =
    c"put($self, payload, block=True, timeout=None, *, keys=None, \
shared=None, priority=0, delay=0, dedup=None, barrier=False, quiet=False, limit=None, group=None, \
behind=None, coalesce=None, debounce=None, longest=None)
--

Puts a message and returns its id.

Args:
    payload: anything.
    block: wait for room. Default True.
    timeout: seconds to wait for room. Default: for ever.
    keys: one key (str, int, bytes) or an iterable of keys, held alone. Default: what the queue's
        own keys= says of the payload, else none.
    shared: keys held together with other readers.
    priority: -100 to 100; higher ones are handed out first, but never out of a key's order.
    delay: seconds until the message takes its place.
    dedup: a name; while a message of this name is unsettled, or was settled within the queue's
        window, nothing is put and its id is returned.
    barrier: runs alone, after all before it and before all after it; names no keys.
    quiet: leave the message out of the debug log.
    limit: one concurrency limit's name, or several: the message is handed out only while each has
        room.
    group: a name; messages of different groups take turns.
    coalesce: a key; while the newest message with this name is not leased, its payload is replaced
        and its id is returned.
    debounce: seconds after the last put of the name until the message takes its place.
    longest: seconds after the first put of the name, beyond which no put delays the message.
    behind: what happens to the message while it waits on a key of a message that is held: wait, bury,
        cancel or park, which also counts while the key is paused. Default: what the queue says. A
        parked message may be overtaken on its other keys by what is put before it returns; on the key it
        waits for, messages that park keep their order.

Raises:
    Full: there was no room in time; or, at once, the message waits on a paused or stuck key and half of the
        queue's bound is parked.
    ShutDown: the queue is shut down.
    WouldDeadlock: the caller is the only one that could make room.
    TypeError, ValueError: an argument is of a wrong type or out of its range; nothing was put.";

pub(in crate::fast) const GET_DOC: &std::ffi::CStr = c"get($self, block=True, timeout=None, *, kind='any')
--

Takes the next message: the one of highest priority, then first in sequence, of those that
nothing holds up.

Args:
    block: wait for one. Default True.
    timeout: seconds to wait. Default: for ever.
    kind: 'any', 'keyed' (barriers too) or 'unkeyed'.

Returns:
    a Lease, to be settled with ack(), nack(), reject() or release(), or as a context manager.

Raises:
    Empty: no message was ready in time.
    ShutDown: the queue is shut down and nothing unsettled is left; or immediately, and nothing is ready.
    WouldDeadlock: the queue is shut down, and the caller handles all that could still come.";

pub(in crate::fast) const ACK_DOC: &std::ffi::CStr = c"ack($self)
--

The message was handled: its lanes \
                                              move on.

Raises:
    LeaseLost: the lease was \
                                              settled, expired or was revoked; nothing was \
                                              changed.";

pub(in crate::fast) unsafe extern "C" fn put(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter with the GIL held, and as described for METH_FASTCALL with
        // keywords: `count` positional arguments, then one value for each of `names`.
        unsafe {
            let py = Python::assume_attached();
            let known = Known::get(py);
            let queue = Borrowed::from_ptr(py, slf);
            let queue = queue.cast_unchecked::<Queue>().get();
            let usual = usual_arguments(known, args, count, names);
            if let Some((payload, keys)) = usual {
                if let Some(id) =
                    quick_put::<false>(py, queue, known, payload, keys, [null_mut(); 2])
                {
                    return id_of(slf, queue, id);
                }
            }
            let named = match usual {
                Some(_) => None,
                None => named_arguments(known, args, count, names),
            };
            if let Some([payload, keys, limit, group]) = named {
                if let Some(id) = quick_put::<true>(py, queue, known, payload, keys, [limit, group])
                {
                    return id_of(slf, queue, id);
                }
            }
            let Some(found) = find_arguments(known, args, count, names) else {
                return in_full(slf, "_put", args, count, names);
            };
            // What was tried above is not tried again.
            if usual.is_none() && named.is_none() && known.is_usual(&found) {
                let [payload, keys, limit, group] =
                    [PAYLOAD, KEYS, LIMIT, GROUP].map(|at| found[at]);
                if let Some(id) = quick_put::<true>(py, queue, known, payload, keys, [limit, group])
                {
                    return id_of(slf, queue, id);
                }
            }
            let given = |at: usize| {
                let value = found[at];
                (!known.is_unsaid(value)).then(|| Borrowed::from_ptr(py, value).to_owned())
            };
            attached(|py| {
                let payload = Borrowed::from_ptr(py, found[PAYLOAD]);
                let block = match found[BLOCK].is_null() {
                    true => Truth(true),
                    false => Borrowed::from_ptr(py, found[BLOCK]).extract()?,
                };
                let [timeout, keys, shared, priority, delay, dedup, barrier, quiet, limit, group, behind] =
                    std::array::from_fn(|i| given(TIMEOUT + i));
                let id = queue._put(
                    py,
                    &payload,
                    block,
                    timeout.as_ref(),
                    keys.as_ref(),
                    shared.as_ref(),
                    priority.as_ref(),
                    delay.as_ref(),
                    dedup.as_ref(),
                    barrier.as_ref(),
                    quiet.as_ref(),
                    limit.as_ref(),
                    group.as_ref(),
                    behind.as_ref(),
                    None,
                    None,
                    None,
                )?;
                convert::int(py, id).map(Bound::into_ptr)
            })
        }
    })
}

/// An id for Python, after what the put noted was said.
#[inline]
pub(in crate::fast) unsafe fn id_of(slf: *mut PyObject, queue: &Queue, id: u64) -> *mut PyObject {
    // SAFETY: the GIL is held.
    let py = unsafe { Python::assume_attached() };
    let make = || or_raised(py, convert::int(py, id).map(Bound::into_ptr));
    if queue.core.has_events() {
        said(slf, make)
    } else {
        make()
    }
}

/// A put that names at most keys, of the usual types, one limit and a group, and finds room. `None`: it is not one.
/// `NAMED`: a limit or a group may be given. It is compiled twice, for most puts name only keys.
///
/// # Safety
/// The GIL is held; `payload` is an object, `keys` one or null, as the limit and the group are.
#[inline]
pub(in crate::fast) unsafe fn quick_put<const NAMED: bool>(
    py: Python<'_>,
    queue: &Queue,
    known: &Known,
    payload: *mut PyObject,
    keys: *mut PyObject,
    [limit, group]: [*mut PyObject; 2],
) -> Option<u64> {
    if !queue.plain || queue.is_forked() {
        return None;
    }
    let name = |name: *mut PyObject| match known.is_unsaid(name) {
        true => Some(&[][..]),
        // SAFETY: the caller's.
        false => quick_name(unsafe { Borrowed::from_ptr(py, name) }),
    };
    let names = match NAMED {
        true => [name(limit)?, name(group)?],
        false => [&[][..]; 2],
    };
    if known.is_unsaid(keys) {
        return place::<NAMED>(py, queue, &[], names, payload);
    }
    // SAFETY: the caller's.
    let keys = unsafe { Borrowed::from_ptr(py, keys) };
    match convert::quick_key(keys) {
        Some(key) => place::<NAMED>(py, queue, &[key], names, payload),
        None => place::<NAMED>(py, queue, &convert::quick(&keys)?, names, payload),
    }
}

fn place<const NAMED: bool>(
    py: Python<'_>,
    queue: &Queue,
    keys: &[KeyRef<'_>],
    [limit, group]: [&[u8]; 2],
    payload: *mut PyObject,
) -> Option<u64> {
    let put = match NAMED {
        true => Put { keys, limit, group, ..Put::default() },
        false => Put { keys, ..Put::default() },
    };
    // SAFETY: an object, which the caller of the entry holds.
    let mut payload = Some(unsafe { Borrowed::from_ptr(py, payload) }.to_owned().unbind());
    if let Ok(Ok(placed)) = queue.core.try_put(&put, &mut payload) {
        return Some(placed.id);
    }
    if let Some(payload) = payload {
        give_back(payload);
    }
    None
}

pub(in crate::fast) unsafe extern "C" fn get(
    slf: *mut PyObject,
    args: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: as in `put`.
        unsafe {
            let py = Python::assume_attached();
            let bound = Borrowed::from_ptr(py, slf);
            let bound = bound.cast_unchecked::<Queue>();
            let queue = bound.get();
            if count == 0 && names.is_null() && !queue.is_forked() {
                let consumer = wait::consumer();
                queue.note_getter(consumer);
                let view = |payload: &Py<PyAny>, _: &Grant| payload.clone_ref(py);
                if let Ok(Some((grant, payload))) = queue.core.try_get(Kind::Any, consumer, view) {
                    let make =
                        || or_raised(py, Lease::make(&bound, grant, payload).map(Bound::into_ptr));
                    return if queue.core.has_events() { said(slf, make) } else { make() };
                }
            }
            in_full(slf, "_get", args, count, names)
        }
    })
}

pub(in crate::fast) unsafe extern "C" fn ack(
    slf: *mut PyObject,
    _: *mut PyObject,
) -> *mut PyObject {
    guarded(|| {
        // SAFETY: called by the interpreter with the GIL held, on a Lease.
        unsafe {
            let py = Python::assume_attached();
            let lease = Borrowed::from_ptr(py, slf);
            let lease = lease.cast_unchecked::<Lease>().get();
            let queue = lease.queue.get();
            if lease.is_settled() || queue.is_forked() || queue.core.has_events() {
                return attached(|py| lease.ack(py).map(|()| py.None().into_ptr()));
            }
            match lease.ack_in_core(py) {
                Ok(payload) => {
                    lease.handed_over();
                    if let Some(payload) = payload {
                        give_back(payload);
                    }
                    if queue.core.has_events() {
                        return attached(|py| queue.say(py).map(|()| py.None().into_ptr()));
                    }
                    let none = ffi::Py_None();
                    ffi::Py_INCREF(none);
                    none
                }
                Err(_) => attached(|py| Err(lease.refused(py))),
            }
        }
    })
}
