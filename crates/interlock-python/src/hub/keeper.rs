//! The keeper of a node's table from Python: calls of NODE out, replies in.

use std::sync::Arc;

use interlock_hub::system::time;
use interlock_hub::tables::keeper::{Call, Keeper, Limits};
use interlock_node::hub::HubWrites;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::runtime::fork;

#[pyclass(module = "interlock._core", frozen)]
pub struct TableKeeper {
    keeper: Arc<Keeper>,
    /// Writes to its table, which the node's loop takes.
    writes: Arc<HubWrites>,
    /// The fork after which it was made: its hub is in that process.
    forks: u32,
}

#[pymethods]
impl TableKeeper {
    /// `calls` and `size`: calls, and bytes of them, that wait at most; beyond that they are refused.
    #[new]
    #[pyo3(signature = (*, calls = Limits::default().calls, size = Limits::default().bytes))]
    fn new(calls: usize, size: usize) -> PyResult<TableKeeper> {
        if calls == 0 || size == 0 {
            let text = format!("TableKeeper(): calls is {calls}, size {size}; allowed: 1 and more");
            return Err(PyValueError::new_err(text));
        }
        let keeper = Keeper::new(Limits { calls, bytes: size })?;
        let writes = HubWrites::new(size)?;
        Ok(TableKeeper { keeper, writes, forks: fork::generation() })
    }

    /// Readable while there is something to take.
    fn fileno(&self) -> i32 {
        self.keeper.descriptor()
    }

    /// Removes and returns up to `most` calls, oldest first: the connection, the user's name, whether it uses
    /// RESP3, and the arguments.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.keeper.take(most).into_iter().map(|call| shown(py, call)).collect()
    }

    /// Answers calls, with bytes as they are sent. Calls that are gone or already answered are
    /// skipped.
    fn answer(&self, replies: Vec<(u64, Bound<'_, PyBytes>)>) -> PyResult<()> {
        for (asker, reply) in &replies {
            let bytes = reply.as_bytes();
            if bytes.len() < 3 || !bytes.ends_with(b"\r\n") {
                let text = format!(
                    "answer(): the reply to {asker} is {:.80}; allowed: one whole reply, as it goes out",
                    reply.repr()?.to_string()
                );
                return Err(PyValueError::new_err(text));
            }
        }
        let replies = replies.iter().map(|(asker, reply)| (*asker, reply.as_bytes().to_vec()));
        self.keeper.answer(replies);
        Ok(())
    }

    /// Answers reads of its tables for this many seconds from now; None: without limit; 0: not at
    /// all.
    fn set_fresh(&self, seconds: Option<f64>) -> PyResult<()> {
        let until = match seconds {
            None => None,
            Some(0.0) => Some(0),
            Some(seconds) if seconds > 0.0 => {
                // Rounded down, and what is beyond the end of time is its end.
                Some(time::now().saturating_add((seconds * 1e6) as u64))
            }
            Some(seconds) => {
                let text = format!("set_fresh(): seconds is {seconds}; allowed: 0 and more, None");
                return Err(PyValueError::new_err(text));
            }
        };
        self.keeper.set_fresh_until(until);
        Ok(())
    }

    /// Refuses what waits and what will come. Reads are answered, as long as `set_fresh` says.
    fn close(&self) {
        if fork::generation() == self.forks {
            self.keeper.end();
            self.writes.end();
        }
    }
}

impl TableKeeper {
    pub fn keeper(&self) -> Arc<Keeper> {
        self.keeper.clone()
    }

    pub fn writes(&self) -> Arc<HubWrites> {
        self.writes.clone()
    }
}

impl Drop for TableKeeper {
    /// In the child of a fork its locks may be held for ever, and the connections are the parent's.
    fn drop(&mut self) {
        self.close();
    }
}

fn shown<'py>(py: Python<'py>, call: Call) -> PyResult<Bound<'py, PyTuple>> {
    let user = call.user.as_ref().map_or(&[][..], |user| user.name.as_bytes());
    let arguments = call.arguments.arguments();
    let arguments = (0..arguments.len()).map(|index| PyBytes::new(py, &arguments[index]));
    let arguments = PyList::new(py, arguments)?;
    (call.number, PyBytes::new(py, user), call.resp3, arguments).into_pyobject(py)
}
