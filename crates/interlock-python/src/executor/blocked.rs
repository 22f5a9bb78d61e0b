//! Handlers that wait without an end: for a result, or for room. This finds out whether one would
//! wait for itself (clause 25), directly or through others: it waits for a message that is behind
//! its own, or behind that of a handler that waits likewise; or for one that needs a worker or a slot
//! of a limit, where handlers that wait likewise have all of them.

use std::sync::atomic::Ordering;
use std::sync::Mutex;

use interlock_core::queue::calls::chain::Chain;
use interlock_core::queue::types::Kind;
use pyo3::prelude::*;

use crate::executor::future::Future;
use crate::executor::work::with_handling;
use crate::queue::Queue;
use crate::runtime::errors;

/// A thread that handles messages and waits.
struct Blocked {
    number: u64,
    handles: Vec<Handled>,
    wants: Wants,
}

struct Handled {
    queue: Py<Queue>,
    id: u64,
    token: u64,
    kind: Kind,
}

/// A queue is known by its address: it lives as long as somebody waits for it.
enum Wants {
    Result { queue: Py<Queue>, id: u64, future: Py<Future> },
    Room { queue: usize, size: u64 },
}

#[derive(Default)]
struct All {
    blocked: Vec<Blocked>,
    last: u64,
}

// Held under the GIL, and never while a queue is asked, which may run Python code.
static ALL: Mutex<All> = Mutex::new(All { blocked: Vec::new(), last: 0 });

/// While it lives, others see that this thread waits.
pub struct Guard {
    number: u64,
}

impl Guard {
    fn new(blocked: Blocked) -> Self {
        let mut all = ALL.lock().expect("never poisoned");
        all.last += 1;
        let number = all.last;
        all.blocked.push(Blocked { number, ..blocked });
        Guard { number }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _gone = {
            let mut all = ALL.lock().expect("never poisoned");
            let place = all.blocked.iter().position(|blocked| blocked.number == self.number);
            // Dropped outside the lock: it may be the last to hold the future.
            place.map(|place| all.blocked.swap_remove(place))
        };
    }
}

/// The calling thread is about to wait for a result. `None`: it handles nothing.
pub fn for_result(future: &Bound<'_, Future>) -> PyResult<Option<Guard>> {
    let py = future.py();
    let handles = handled_here(py);
    if handles.is_empty() {
        return Ok(None);
    }
    let (queue, id) = {
        let inner = future.get().lock();
        let Some(queue) = inner.queue.as_ref() else { return Ok(None) };
        (queue.clone_ref(py), inner.id)
    };
    if let Some(chain) = chain_to(py, &queue, id, &handles) {
        return Err(errors::would_deadlock(
            py,
            format!(
                "result(): this handler waits for message {id}, which waits for the handler's own \
                 ({}): it would never end. Return first, or submit without the shared key or limit",
                told(&chain)
            ),
        ));
    }
    let keyed = queue.get().core.call(|scheduler, _| scheduler.keys_of_id(id));
    let keyed = keyed.is_some_and(|keys| !keys.is_empty());
    if let Some(workers) = no_worker_left(py, queue.get(), &handles, keyed) {
        return Err(errors::would_deadlock(
            py,
            format!(
                "result(): this handler waits for message {id}, which waits for a worker, and so do \
                 the handlers of all {workers} workers of {:?}: it would never end. Return first, or \
                 give the executor more workers",
                queue.get().queue_name()
            ),
        ));
    }
    let wants = Wants::Result { queue, id, future: future.clone().unbind() };
    let me = Blocked { number: 0, handles, wants };
    if let Some(chain) = stuck(py, &me) {
        return Err(errors::would_deadlock(
            py,
            format!(
                "result(): this handler waits for message {id}, which waits for handlers that all wait \
                 likewise ({}): it would never end. Return first, or submit without the shared limit",
                told(&chain)
            ),
        ));
    }
    Ok(Some(Guard::new(me)))
}

/// The chain in words; of a long one its ends.
fn told(chain: &[String]) -> String {
    let words = |some: &[String]| some.join(" behind ");
    match chain.len().checked_sub(2 * SHOWN) {
        None | Some(0) => words(chain),
        Some(left_out) => format!(
            "{} behind {left_out} others behind {}",
            words(&chain[..SHOWN]),
            words(&chain[chain.len() - SHOWN..])
        ),
    }
}

/// Messages at each end of a chain that are named.
const SHOWN: usize = 10;

/// The calling thread is about to wait for room in a queue. `None`: it handles nothing.
pub fn for_room(py: Python<'_>, queue: &Queue, size: u64) -> PyResult<Option<Guard>> {
    let handles = handled_here(py);
    if handles.is_empty() {
        return Ok(None);
    }
    if let Some(workers) = no_worker_left(py, queue, &handles, false) {
        return Err(errors::would_deadlock(
            py,
            format!(
                "{:?} is full, and the handlers of all its {workers} workers wait, this one for room: \
                 it would never end. Return first, or make it larger",
                queue.queue_name()
            ),
        ));
    }
    let wants = Wants::Room { queue: address(queue), size };
    let me = Blocked { number: 0, handles, wants };
    if stuck(py, &me).is_some() {
        return Err(errors::would_deadlock(
            py,
            format!(
                "{:?} is full, and all that is in it waits for the message that this handler has, or \
                 for handlers that wait likewise: it would never end. Return first, or make it larger",
                queue.queue_name()
            ),
        ));
    }
    Ok(Some(Guard::new(me)))
}

/// Lists the threads that wait now.
fn blocked(py: Python<'_>) -> Vec<Blocked> {
    let all = ALL.lock().expect("never poisoned");
    all.blocked.iter().map(|blocked| blocked.clone_ref(py)).collect()
}

fn handled_here(py: Python<'_>) -> Vec<Handled> {
    with_handling(|handling| {
        let handled = handling.map(|h| Handled {
            queue: h.queue.clone_ref(py),
            id: h.id,
            token: h.token,
            kind: h.kind,
        });
        handled.collect()
    })
}

fn address(queue: &Queue) -> usize {
    std::ptr::from_ref(queue) as usize
}

/// Returns the messages of this queue whose lease is still held: a revoked handler blocks no message.
fn of_queue<'a>(handles: &'a [Handled], queue: &'a Queue) -> impl Iterator<Item = &'a Handled> {
    let own = |handled: &&Handled| address(handled.queue.get()) == address(queue);
    let token = |id| queue.core.call(|scheduler, _| scheduler.token_of(id));
    handles.iter().filter(own).filter(move |handled| token(handled.id) == Some(handled.token))
}

/// The chain from a message to one of those handled here, through what stands between and what other
/// handlers wait for.
fn chain_to(py: Python<'_>, queue: &Py<Queue>, id: u64, mine: &[Handled]) -> Option<Vec<String>> {
    let others = blocked(py);
    let mut seen = vec![false; others.len()];
    let mut open = vec![(queue, id, Vec::new())];
    while let Some((queue, id, before)) = open.pop() {
        let to = |handles: &[Handled]| -> Option<Vec<String>> {
            let ids: Vec<u64> = of_queue(handles, queue.get()).map(|handled| handled.id).collect();
            let chain = queue.get().waits_for(id, &ids)?;
            Some(before.iter().cloned().chain(chain.words()).collect())
        };
        if let Some(chain) = to(mine) {
            return Some(chain);
        }
        for (place, blocked) in others.iter().enumerate().filter(|(_, b)| b.is_blocked()) {
            let Wants::Result { queue, id, .. } = &blocked.wants else { continue };
            if seen[place] {
                continue;
            }
            if let Some(chain) = to(&blocked.handles) {
                seen[place] = true;
                open.push((queue, *id, chain));
            }
        }
    }
    None
}

/// The chain by which the caller waits for handlers that never end, because each waits for another of
/// them or for the caller.
fn stuck(py: Python<'_>, me: &Blocked) -> Option<Vec<String>> {
    let others = blocked(py);
    let mut stuck: Vec<&Blocked> = others.iter().filter(|one| one.is_blocked()).collect();
    stuck.push(me);
    loop {
        // Usually the search ends here: some of them continue.
        let chain = me.waits_for(&stuck)?;
        let left = stuck.iter().copied().filter(|one| one.waits_for(&stuck).is_some());
        let left: Vec<&Blocked> = left.collect();
        if left.len() == stuck.len() {
            return Some(chain);
        }
        stuck = left;
    }
}

/// Returns the number of workers, if with the caller none is left to handle the awaited message:
/// `keyed`: workers for unkeyed messages do not count.
fn no_worker_left(py: Python<'_>, queue: &Queue, mine: &[Handled], keyed: bool) -> Option<u32> {
    // Relaxed: set before the first worker was started.
    let all = queue.crew.all.load(Ordering::Relaxed);
    let any = queue.crew.any.load(Ordering::Relaxed);
    let kind = of_queue(mine, queue).next().filter(|_| all > 0)?.kind;
    let (mut waiting, mut for_keyed) = (1, u32::from(keyed && kind == Kind::Any));
    for blocked in blocked(py).iter().filter(|blocked| blocked.is_blocked()) {
        let Some(handled) = of_queue(&blocked.handles, queue).next() else { continue };
        if blocked.wants_of() != address(queue) {
            continue;
        }
        waiting += 1;
        for_keyed += u32::from(handled.kind == Kind::Any && blocked.wants_keyed());
    }
    (waiting >= all || for_keyed >= any).then_some(all)
}

/// Returns the number of workers that could take such a message, if these handlers have all of them.
fn all_workers(queue: &Queue, stuck: &[&Blocked], keyed: bool) -> Option<usize> {
    let taken = stuck.iter().filter_map(|one| of_queue(&one.handles, queue).next());
    let taken = taken.filter(|handled| !keyed || handled.kind == Kind::Any).count();
    let workers = if keyed { &queue.crew.any } else { &queue.crew.all };
    // Relaxed: set before the first worker was started.
    let workers = workers.load(Ordering::Relaxed) as usize;
    (workers > 0 && taken >= workers).then_some(workers)
}

impl Handled {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        let Handled { ref queue, id, token, kind } = *self;
        Handled { queue: queue.clone_ref(py), id, token, kind }
    }
}

impl Blocked {
    fn clone_ref(&self, py: Python<'_>) -> Self {
        let wants = match &self.wants {
            Wants::Result { queue, id, future } => {
                Wants::Result { queue: queue.clone_ref(py), id: *id, future: future.clone_ref(py) }
            }
            Wants::Room { queue, size } => Wants::Room { queue: *queue, size: *size },
        };
        let handles = self.handles.iter().map(|handled| handled.clone_ref(py)).collect();
        Blocked { number: self.number, handles, wants }
    }

    /// Returns whether it waits. It may have been woken without having run yet.
    fn is_blocked(&self) -> bool {
        match &self.wants {
            Wants::Result { future, .. } => !future.get().is_done(),
            Wants::Room { size, .. } => self.handles.iter().all(|handled| {
                let queue = handled.queue.get();
                address(queue) != self.wants_of()
                    || queue.core.call(|scheduler, _| scheduler.room(1, *size)).is_err()
            }),
        }
    }

    /// The chain by which it waits for some of these handlers, itself among them. `None`: it continues
    /// although they do not.
    fn waits_for(&self, stuck: &[&Blocked]) -> Option<Vec<String>> {
        let ids = |queue: &Queue| -> Vec<u64> {
            let handled = stuck.iter().flat_map(|one| of_queue(&one.handles, queue));
            handled.map(|handled| handled.id).collect()
        };
        match &self.wants {
            Wants::Result { queue, id, .. } => {
                let queue = queue.get();
                if let Some(workers) = all_workers(queue, stuck, self.wants_keyed()) {
                    return Some(vec![id.to_string(), format!("all {workers} workers")]);
                }
                queue.waits_for(*id, &ids(queue)).map(|chain| chain.words())
            }
            Wants::Room { queue, .. } => {
                let mut queues = self.handles.iter().map(|handled| handled.queue.get());
                let queue = queues.find(|one| address(one) == *queue)?;
                let ids = ids(queue);
                let all = queue.core.call(|scheduler, _| scheduler.all_wait_for(&ids));
                (all || all_workers(queue, stuck, false).is_some()).then(Vec::new)
            }
        }
    }

    fn wants_of(&self) -> usize {
        match &self.wants {
            Wants::Result { queue, .. } => address(queue.get()),
            Wants::Room { queue, .. } => *queue,
        }
    }

    fn wants_keyed(&self) -> bool {
        match &self.wants {
            Wants::Result { queue, id, .. } => {
                let keys = queue.get().core.call(|scheduler, _| scheduler.keys_of_id(*id));
                keys.is_some_and(|keys| !keys.is_empty())
            }
            Wants::Room { .. } => false,
        }
    }
}

impl Queue {
    fn waits_for(&self, id: u64, stuck: &[u64]) -> Option<Chain> {
        self.core.call(|scheduler, _| scheduler.waits_for(id, stuck))
    }
}

/// A message of this queue that the calling thread handles for an executor.
pub fn handles_of(queue: &Queue) -> Option<u64> {
    let at = address(queue);
    with_handling(|handling| {
        let mut own = handling.filter(|handling| address(handling.queue.get()) == at);
        own.next().map(|handling| handling.id)
    })
}
