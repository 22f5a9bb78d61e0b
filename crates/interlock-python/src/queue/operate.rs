//! The queue as an operator holds it: cancel, revoke, dead letters, pause, why, how much.

use std::sync::atomic::Ordering;

use interlock_core::key::KeyRef;
use interlock_core::queue::calls::lease::Failed;
use interlock_core::queue::calls::roots::Behind;
use interlock_core::queue::parts::dead::Dead;
use interlock_core::queue::types::limits::Rate;
use interlock_core::queue::types::{LimitUse, RevokeThen, State};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDict, PyInt, PyString, PyTuple};
use pyo3::Borrowed;

use crate::executor::future;
use crate::queue::explanation;
use crate::queue::messages;
use crate::queue::Queue;
use crate::runtime::convert;
use crate::runtime::convert::{frozen, Truth};
use crate::runtime::errors;

#[pymethods]
impl Queue {
    /// Settles a message that is not leased. False: it is leased or settled.
    pub fn cancel(&self, py: Python<'_>, id: Id) -> PyResult<bool> {
        let id = id.0;
        self.check_fork(py);
        let payload = self.core.call(|scheduler, now| scheduler.cancel(now, id));
        self.say(py)?;
        if let Some(payload) = &payload {
            future::settled_without_result(payload.bind(py))?;
        }
        Ok(payload.is_some())
    }

    /// Ends the lease of a message as if it had run out.
    #[pyo3(signature = (id, then = None), text_signature = "($self, id, then='retry')")]
    fn revoke(&self, py: Python<'_>, id: Id, then: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        let id = id.0;
        self.check_fork(py);
        let then = then.map_or(Ok(RevokeThen::Retry), revoke_then)?;
        if then == RevokeThen::Dead && !self.keeps_dead() {
            let revoked =
                self.core.call(|scheduler, now| scheduler.revoke(now, id, RevokeThen::Skip));
            return self.ended(py, revoked.flatten());
        }
        let (revoked, dead) = self.core.call(|scheduler, now| {
            let revoked = scheduler.revoke(now, id, then);
            let dead = scheduler.dead_payload(id).filter(|_| revoked.is_some());
            (revoked, dead.map(|payload| payload.clone_ref(py)))
        });
        self.say(py)?;
        if let Some(Some(payload)) = &revoked {
            future::settled_without_result(payload.bind(py))?;
        }
        if let Some(payload) = dead {
            future::given_up(payload.bind(py))?;
        }
        Ok(revoked.is_some())
    }

    /// Revokes a lease for a retry, but only this one and none that came after it.
    fn _revoke_token(&self, py: Python<'_>, token: u64, id: u64) -> PyResult<bool> {
        self.check_fork(py);
        let revoked = self.core.call(|scheduler, now| {
            scheduler.tick(now);
            if scheduler.token_of(id) != Some(token) {
                return false;
            }
            scheduler.revoke(now, id, RevokeThen::Retry).is_some()
        });
        self.say(py)?;
        Ok(revoked)
    }

    /// Make a held or backing-off message ready at once.
    fn retry(&self, py: Python<'_>, id: Id) -> PyResult<bool> {
        let id = id.0;
        self.check_fork(py);
        let done = self.core.call(|scheduler, now| scheduler.retry(now, id));
        self.say(py)?;
        Ok(done)
    }

    /// Settles a held message, or one that backs off.
    fn skip(&self, py: Python<'_>, id: Id) -> PyResult<bool> {
        let id = id.0;
        self.check_fork(py);
        let payload = self.core.call(|scheduler, now| scheduler.skip(now, id));
        self.say(py)?;
        let skipped = payload.is_some();
        if let Some(payload) = payload {
            future::settled_without_result(payload.bind(py))?;
        }
        Ok(skipped)
    }

    /// Turn a held or backing-off message into a dead letter.
    fn bury(&self, py: Python<'_>, id: Id) -> PyResult<bool> {
        let id = id.0;
        self.check_fork(py);
        if !self.keeps_dead() {
            let payload = self.core.call(|scheduler, now| scheduler.skip(now, id));
            return self.ended(py, payload);
        }
        let buried = self.core.call(|scheduler, now| {
            scheduler.bury(now, id).then(|| scheduler.dead_payload(id).map(|p| p.clone_ref(py)))
        });
        self.say(py)?;
        if let Some(Some(payload)) = &buried {
            future::given_up(payload.bind(py))?;
        }
        Ok(buried.is_some())
    }

    fn _requeue(&self, py: Python<'_>, id: Id) -> PyResult<Option<u64>> {
        self.check_fork(py);
        let new = self.core.requeue(id.0);
        self.say(py)?;
        let (call, name) = ("requeue()", self.queue_name());
        new.map_err(|ended| errors::put_ended(py, call, name, ended, self.bounds))?
            .map_err(|refused| errors::refused(py, call, name, refused, self.bounds))
    }

    /// Drops a dead letter. Returns false if the id is unknown.
    fn discard(&self, py: Python<'_>, id: Id) -> bool {
        self.check_fork(py);
        let dropped = self.core.call(|scheduler, now| scheduler.discard(now, id.0));
        dropped.is_some()
    }

    /// Some of the ids of the dead letters, or of what can be cancelled from a place on, and the
    /// place to continue from; 0 after the last.
    fn _purgeable(&self, py: Python<'_>, dead: bool, place: u64) -> (Vec<u64>, u64) {
        self.check_fork(py);
        self.core.call(|scheduler, now| {
            scheduler.tick(now);
            if dead {
                let ids: Vec<u64> = scheduler.all_dead().take(PURGED).map(|dead| dead.id).collect();
                let next = u64::from(ids.len() == PURGED);
                return (ids, next);
            }
            let mut ids = Vec::new();
            let next = scheduler.scan(place, PURGED, |seen| {
                if seen.state != State::Leased {
                    ids.push(seen.id);
                }
                true
            });
            (ids, next)
        })
    }

    /// (id, payload, keys, shared, priority, attempt, state, error, limit, group, coalesce, behind) each,
    /// by rising ids behind `after`; `limit` is the limit names, joined.
    fn _messages<'py>(
        &self,
        py: Python<'py>,
        limit: &Bound<'py, PyAny>,
        state: Option<&str>,
        key: Option<&Bound<'py, PyAny>>,
        after: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let limit = at_least_one(limit, "messages(): limit")?;
        self.check_fork(py);
        let key = key.map(|k| convert::key(k, || "messages(): key".into())).transpose()?;
        let key = key.as_ref().map(|key| key.as_bytes());
        let after = after.map_or(Ok(0), |after| id_of(after, "messages(): after"))?;
        messages::messages(&self.core, limit, state, key, after, |payload| payload.clone_ref(py))
            .into_iter()
            .map(|listed| {
                let names = |shared: bool| {
                    let keys = listed.keys.iter().filter(move |(_, s)| *s == shared);
                    frozen(py, keys.map(|(key, _)| key.clone()))
                };
                let (keys, shared) = (names(false)?, names(true)?);
                let messages::Listed { id, payload, priority, attempt, state, error, .. } = listed;
                let limit = PyBytes::new(py, &listed.limit);
                let group = PyBytes::new(py, &listed.group);
                let coalesce = listed.coalesce.map(|name| PyBytes::new(py, &name));
                (
                    id,
                    payload,
                    keys,
                    shared,
                    priority,
                    attempt,
                    state,
                    error,
                    limit,
                    group,
                    coalesce,
                    listed.behind,
                )
                    .into_pyobject(py)
            })
            .collect()
    }

    /// (id, payload, keys, shared, attempts, error, priority) each, oldest dead first.
    fn _dead_letters<'py>(
        &self,
        py: Python<'py>,
        limit: &Bound<'py, PyAny>,
        key: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let limit = at_least_one(limit, "dead_letters(): limit")?;
        self.check_fork(py);
        let key = key.map(|k| convert::key(k, || "dead_letters(): key".into())).transpose()?;
        let letters: Vec<Letter> = self.core.call(|scheduler, now| {
            let copy = |dead: &Dead<Py<PyAny>>| Letter {
                id: dead.id,
                payload: dead.payload.clone_ref(py),
                keys: dead.keys.clone(),
                attempts: dead.attempts,
                error: dead.error.clone(),
                priority: dead.priority,
            };
            match &key {
                None => scheduler.dead_letters(now, limit).map(copy).collect(),
                Some(key) => {
                    scheduler.dead_letters_on(now, key.as_bytes(), limit).map(copy).collect()
                }
            }
        });
        let letter = |dead: Letter| {
            let names = |shared: bool| {
                let keys = dead.keys.iter().filter(move |(_, s)| *s == shared);
                frozen(py, keys.map(|(key, _)| key.as_bytes().to_vec()))
            };
            let (keys, shared) = (names(false)?, names(true)?);
            let Letter { id, payload, attempts, error, priority, .. } = dead;
            (id, payload, keys, shared, attempts, error, priority).into_pyobject(py)
        };
        letters.into_iter().map(letter).collect()
    }

    /// The last error of a dead letter; `None` if the id is unknown.
    fn _dead_error(&self, py: Python<'_>, id: Id) -> Option<String> {
        self.check_fork(py);
        self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.dead_letter(id.0).map(|dead| dead.error.to_string())
        })
    }

    /// Pause the queue, or a key: no message, or none with that key, is leased. True: it was not paused.
    #[pyo3(signature = (key = None))]
    fn pause(&self, py: Python<'_>, key: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.check_fork(py);
        let key = key.map(|k| convert::key(k, || "pause(): key".into())).transpose()?;
        let key = key.as_ref().map(|key| KeyRef::new(key.as_bytes()));
        let paused = self.core.call(|scheduler, now| scheduler.pause(now, key));
        self.say(py)?;
        Ok(paused)
    }

    /// Undoes a pause. Returns false without one.
    #[pyo3(signature = (key = None))]
    fn resume(&self, py: Python<'_>, key: Option<&Bound<'_, PyAny>>) -> PyResult<bool> {
        self.check_fork(py);
        let key = key.map(|k| convert::key(k, || "resume(): key".into())).transpose()?;
        let key = key.as_ref().map(|key| KeyRef::new(key.as_bytes()));
        let resumed = self.core.call(|scheduler, now| scheduler.resume(now, key));
        self.say(py)?;
        Ok(resumed)
    }

    fn _explain<'py>(
        &self,
        py: Python<'py>,
        id: Option<Id>,
        key: Option<&Bound<'py, PyAny>>,
        limit: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let limit = at_least_one(limit, "explain(): limit")?;
        let id = id.map(|id| id.0);
        self.check_fork(py);
        let key = key.map(|k| convert::key(k, || "explain(): key".into())).transpose()?;
        let explained = self.core.call(|scheduler, now| match (id, &key) {
            (Some(id), _) => scheduler.explain(now, id, limit),
            (None, Some(key)) => scheduler.explain_key(now, KeyRef::new(key.as_bytes()), limit),
            (None, None) => None,
        });
        explained.map(|explained| explanation::to_python(py, &explained)).transpose()
    }

    /// (key, depth), deepest first.
    fn _hot_keys<'py>(
        &self,
        py: Python<'py>,
        n: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
        let limit = at_least_one(n, "hot_keys(): n")?;
        self.check_fork(py);
        let hot = self.core.call(|scheduler, now| scheduler.hot_keys(now, limit));
        Ok(hot.into_iter().map(|hot| (PyBytes::new(py, &hot.key), hot.depth)).collect())
    }

    /// (name, most, interval, burst, leased, waiting, keeper, wait, closed) each, times in µs.
    fn _limits<'py>(
        &self,
        py: Python<'py>,
        n: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let limit = at_least_one(n, "limits(): n")?;
        self.check_fork(py);
        let (_, found) = self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.limits_used(now, limit)
        });
        let tuple = |one: LimitUse| {
            let (interval, burst) = (one.rate.map(|rate| rate.interval), one.rate.map(Rate::burst));
            let name = PyBytes::new(py, &one.name);
            let LimitUse { most, leased, waiting, keeper, wait, closed, .. } = one;
            (name, most, interval, burst, leased, waiting, keeper, wait, closed).into_pyobject(py)
        };
        found.into_iter().map(tuple).collect()
    }

    /// (found, exact, [(kind, id, key, depth, seconds, thread)]), the deepest first.
    fn _roots<'py>(
        &self,
        py: Python<'py>,
        long: f64,
        limit: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let limit = at_least_one(limit, "roots(): limit")?;
        self.check_fork(py);
        let roots = self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.roots(now, (long * 1e6) as u64, limit)
        });
        explanation::roots_to_python(py, &roots)
    }

    /// Messages that wait behind these, and whether those are all.
    fn _blocked(
        &self,
        py: Python<'_>,
        ids: Vec<u64>,
        keys: Vec<Vec<u8>>,
        most: u64,
    ) -> (u64, bool) {
        self.check_fork(py);
        let queue = keys.iter().any(Vec::is_empty);
        let keys: Vec<_> = keys.iter().map(|key| KeyRef::new(key)).collect();
        let behind = Behind { ids: &ids, keys: &keys, queue };
        self.core.call(|scheduler, _| scheduler.blocked(&behind, most))
    }

    fn _stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.check_fork(py);
        let (stats, ages) =
            self.core.call(|scheduler, now| (scheduler.stats(now), scheduler.ages(now)));
        explanation::stats_to_python(py, &stats, ages)
    }

    /// (held ids, paused keys, delayed ids, leased ids, parked ids), each at most `limit` long.
    fn _undrained<'py>(&self, py: Python<'py>, limit: usize) -> PyResult<Bound<'py, PyTuple>> {
        let (held, paused, [delayed, leased, parked]) =
            self.core.call(|scheduler, _| scheduler.undrained(limit));
        let paused: Vec<_> = paused.iter().map(|key| PyBytes::new(py, key)).collect();
        (held, paused, delayed, leased, parked).into_pyobject(py)
    }

    /// Refuses further puts; gets continue until everything is settled. With `immediate`, messages
    /// that are not leased are cancelled: (id, payload, keys, shared, priority, attempt) each, in
    /// the order of ids. `at_once`: gets do not wait for leased messages either.
    #[pyo3(signature = (immediate, at_once = false))]
    fn _shutdown<'py>(
        &self,
        py: Python<'py>,
        immediate: Truth,
        at_once: bool,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.check_fork(py);
        self.core.shut_down();
        if !immediate.0 {
            return Ok(Vec::new());
        }
        let cancelled = self.core.call(|scheduler, now| scheduler.cancel_all(now));
        if at_once {
            self.core.shut_down_at_once();
        }
        for message in &cancelled {
            future::settled_without_result(message.payload.bind(py))?;
        }
        let message = |c: interlock_core::queue::calls::operate::Cancelled<Py<PyAny>>| {
            let names = |shared: bool| {
                let keys = c.keys.iter().filter(move |(_, s)| *s == shared);
                frozen(py, keys.map(|(key, _)| key.as_bytes().to_vec()))
            };
            let (keys, shared) = (names(false)?, names(true)?);
            (c.id, c.payload, keys, shared, c.priority, c.attempt).into_pyobject(py)
        };
        cancelled.into_iter().map(message).collect()
    }

    /// Looks for what is slow. Seconds until it is worth to look again; `None`: there is nothing to
    /// look for, or a manual clock tells when.
    fn _look(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.check_fork(py);
        if self.core.clock().is_manual() {
            return Ok(None);
        }
        let next = self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.watch().next_look()
        });
        self.say(py)?;
        Ok(self.core.time_left(next).map(|left| left.as_secs_f64()))
    }

    #[getter]
    fn _number(&self) -> u64 {
        self.number
    }

    /// Calls that are asleep, for tests that must know when one has come to wait.
    fn _parked(&self) -> usize {
        self.core.parked()
    }

    /// `shutdown` was called: puts are refused, and what is unsettled drains.
    #[getter]
    fn is_shutdown(&self) -> bool {
        self.core.is_shut_down()
    }

    /// Messages that are not settled: those that `join` waits for.
    #[getter]
    fn unfinished_tasks(&self, py: Python<'_>) -> u64 {
        self.check_fork(py);
        self.core.call(|scheduler, now| {
            scheduler.tick(now);
            scheduler.unsettled()
        })
    }

    /// Starts to record every call; `_recording` ends it and gives the schedule as text.
    fn _record(&self) -> PyResult<()> {
        if self.core.call(|scheduler, _| scheduler.record()) {
            return Ok(());
        }
        let text = "record(): call it before the first put, so that the recording can be replayed";
        Err(PyValueError::new_err(text))
    }

    fn _recording(&self) -> Option<String> {
        Some(self.core.call(|scheduler, _| scheduler.recording())?.to_string())
    }
}

impl Queue {
    fn keeps_dead(&self) -> bool {
        // Relaxed: see where it is set.
        self.keeps_dead.load(Ordering::Relaxed)
    }

    /// A message was settled that would be a dead letter elsewhere.
    fn ended(&self, py: Python<'_>, payload: Option<Py<PyAny>>) -> PyResult<bool> {
        self.say(py)?;
        if let Some(payload) = &payload {
            future::given_up(payload.bind(py))?;
        }
        Ok(payload.is_some())
    }
}

/// Ids looked for at a time by a purge.
const PURGED: usize = 1000;

/// A dead letter, copied out from under the lock.
struct Letter {
    id: u64,
    payload: Py<PyAny>,
    keys: Vec<(interlock_core::key::Key, bool)>,
    attempts: u32,
    error: String,
    priority: i8,
}

/// A message's id from Python: a number that no message can have is the id of none.
pub struct Id(u64);

impl<'py> FromPyObject<'_, 'py> for Id {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        id_of(&value, "id").map(Id)
    }
}

fn id_of(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<u64> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(errors::wrong_type(argument, value, "int, as put() returned it"));
    }
    Ok(value.extract::<u64>().unwrap_or(0))
}

/// Reads the action on a message whose lease is revoked.
fn revoke_then(then: &Bound<'_, PyAny>) -> PyResult<RevokeThen> {
    const ALLOWED: &str = "'retry', 'hold', 'dead', 'skip'";
    let Ok(text) = then.cast::<PyString>() else {
        return Err(errors::wrong_type("revoke(): then", then, ALLOWED));
    };
    match &*text.to_string_lossy() {
        "retry" => Ok(RevokeThen::Retry),
        "hold" => Ok(RevokeThen::Hold),
        "dead" => Ok(RevokeThen::Dead),
        "skip" => Ok(RevokeThen::Skip),
        other => {
            Err(PyValueError::new_err(format!("revoke(): then is {other:?}; allowed: {ALLOWED}")))
        }
    }
}

/// Reads a count of 1 or more; more than there can be is as many as there are.
pub fn at_least_one(value: &Bound<'_, PyAny>, argument: &str) -> PyResult<usize> {
    if !value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>() {
        return Err(errors::wrong_type(argument, value, "int"));
    }
    if value.lt(1)? {
        let text = format!("{argument} is {}; allowed: 1 or more", value.repr()?);
        return Err(PyValueError::new_err(text));
    }
    Ok(value.extract().unwrap_or(usize::MAX))
}

/// Returns (outcome, attempt, delay in seconds) of a message whose handling failed.
pub fn failed_to_python(failed: Failed) -> (&'static str, u32, f64) {
    match failed {
        Failed::Again { attempt, after } => ("again", attempt, after as f64 / 1e6),
        Failed::Dead => ("dead", 0, 0.0),
        Failed::Held => ("held", 0, 0.0),
    }
}
