//! The log of a node on an engine that Python speaks to: its threads wait here, without Python.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use interlock_node::bridge::{bridge, Bridge, Chore, Far, Order, Task};
use interlock_node::log::{is_genesis, mark, Entry, Id, Largest, LogPort, Position};
use interlock_node::trouble::{Kind, Trouble};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::table::duration;

/// An entry: id, time in ms, bytes.
type Given = (String, u64, PyBackedBytes);
/// The number of an order, and the position behind which is to be read; `""`: from the first.
type Wanted = Option<(u64, String)>;

#[pyclass(module = "interlock._core", frozen)]
pub struct LogBridge {
    far: Far,
    /// The end that a node takes.
    near: Mutex<Option<Bridge>>,
}

#[pymethods]
impl LogBridge {
    #[new]
    fn new() -> PyResult<LogBridge> {
        let (near, far) = bridge(is_genesis)?;
        Ok(LogBridge { far, near: Mutex::new(Some(near)) })
    }

    /// The digest in a position that tells an entry from another with its id.
    #[staticmethod]
    #[pyo3(name = "mark")]
    fn mark_of(data: &[u8]) -> String {
        format!("{:016x}", mark(data))
    }

    /// Tells whether an entry can be the first of a log.
    #[staticmethod]
    fn begins(data: &[u8]) -> bool {
        is_genesis(data)
    }

    /// Waits up to this many seconds for something to append: its kind, and its entries.
    fn task<'py>(
        &self,
        py: Python<'py>,
        seconds: f64,
    ) -> PyResult<Option<(&'static str, Bound<'py, PyList>)>> {
        let until = Instant::now() + duration(seconds).min(LONGEST);
        let entries = |entries: Vec<Vec<u8>>| {
            PyList::new(py, entries.iter().map(|one| PyBytes::new(py, one)))
        };
        Ok(Some(match py.detach(|| self.far.task(until)) {
            None => return Ok(None),
            Some(Task::Append(found)) => ("append", entries(found)?),
            Some(Task::Begin(entry)) => ("begin", entries(vec![entry])?),
            Some(Task::End) => ("end", PyList::empty(py)),
        }))
    }

    /// Waits up to this many seconds for something else to do: its kind, and its positions.
    fn chore(&self, py: Python<'_>, seconds: f64) -> Option<(&'static str, Vec<String>)> {
        let until = Instant::now() + duration(seconds).min(LONGEST);
        let places = |found: Vec<Position>| found.into_iter().map(position).collect();
        Some(match py.detach(|| self.far.chore(until))? {
            Chore::Look(found) => ("look", places(found)),
            Chore::Trim(found) => ("trim", places(found)),
            Chore::Ends => ("ends", Vec::new()),
            Chore::End => ("end", Vec::new()),
        })
    }

    /// Reports that a search or trim could not be done now.
    fn skipped(&self) {
        self.far.skipped();
    }

    /// The engine accepts entries: the largest size, and the setting that limits it; and the reason
    /// if the log cannot be trimmed.
    fn opened(&self, largest: Option<(usize, String)>, untrimmed: Option<&str>) {
        let largest = largest.map(|(bytes, setting)| Largest { bytes, setting: setting.into() });
        self.far.opened(largest, untrimmed);
    }

    /// Reports for each entry that was looked for whether it exists.
    fn looked(&self, there: Vec<bool>) {
        self.far.looked(there);
    }

    /// All that was to be appended is in the log; with its ids, if the engine tells them.
    fn appended(&self, ids: Option<Vec<String>>) -> PyResult<()> {
        let ids = ids.map(|ids| ids.iter().map(|id| read_id(id)).collect::<PyResult<Vec<Id>>>());
        self.far.appended(ids.transpose()?.as_deref());
        Ok(())
    }

    /// Reports a failure: it is unknown which of the entries are in the log, or the engine accepts none.
    fn failed(&self, kind: &str, text: String) {
        self.far.failed(trouble(kind, text));
    }

    /// Number of entries cut off, or the reason for none.
    fn trimmed(&self, count: u64, refused: Option<String>) {
        let done = refused.map_or(Ok(count), |text| Err(Trouble::new(Kind::Refused, text)));
        self.far.trimmed(done);
    }

    /// The first and the last entry; None if it is empty.
    fn ends(&self, ends: Option<(Given, Given)>) -> PyResult<()> {
        self.far.ends(both(ends)?);
        Ok(())
    }

    /// Waits up to this many seconds until there is something to be read.
    fn order(&self, py: Python<'_>, seconds: f64) -> Wanted {
        let until = Instant::now() + duration(seconds).min(LONGEST);
        wanted(py.detach(|| self.far.order(until)))
    }

    /// Brings the entries read for an order; returns the order to continue with, None if another is
    /// wanted.
    fn read(
        &self,
        py: Python<'_>,
        order: u64,
        entries: Vec<Given>,
        at_end: bool,
    ) -> PyResult<Wanted> {
        let entries = entries.into_iter().map(entry).collect::<PyResult<Vec<Entry>>>()?;
        Ok(wanted(py.detach(|| self.far.read(order, entries, at_end))))
    }

    /// The log does not have the position of an order any more: it has this first and this last entry.
    fn lost(&self, order: u64, ends: Option<(Given, Given)>) -> PyResult<()> {
        self.far.lost(order, both(ends)?);
        Ok(())
    }

    /// The log could not be read.
    fn unread(&self, kind: &str, text: String) {
        self.far.unread(trouble(kind, text));
    }

    /// Ends all waits.
    fn close(&self) {
        self.far.close();
    }

    #[getter]
    fn closed(&self) -> bool {
        self.far.is_closed()
    }
}

impl LogBridge {
    /// The loop's end, for the first who asks.
    pub fn near(&self) -> PyResult<Box<dyn LogPort>> {
        let near = self.near.lock().ok().and_then(|mut near| near.take());
        let near =
            near.ok_or_else(|| PyValueError::new_err("LogNode(): bridge is another node's"))?;
        Ok(Box::new(near))
    }
}

fn trouble(kind: &str, text: String) -> Trouble {
    let kind = match kind {
        "gone" => Kind::Gone,
        "refused" => Kind::Refused,
        _ => Kind::Unreachable,
    };
    Trouble::new(kind, text)
}

fn wanted(order: Option<Order>) -> Wanted {
    order.map(|Order { number, after }| (number, after.map_or_else(String::new, position)))
}

/// A position as streams have it: the id, and the mark or nothing behind a dot.
fn position(Position { id, mark }: Position) -> String {
    mark.map_or_else(|| format!("{id}."), |mark| format!("{id}.{mark:016x}"))
}

fn both(ends: Option<(Given, Given)>) -> PyResult<Option<(Entry, Entry)>> {
    ends.map(|(first, last)| Ok((entry(first)?, entry(last)?))).transpose()
}

fn entry((id, time, bytes): Given) -> PyResult<Entry> {
    Ok(Entry { id: read_id(&id)?, time, bytes: bytes.to_vec() })
}

fn read_id(text: &str) -> PyResult<Id> {
    let wrong = || PyValueError::new_err(format!("{text:.100?} is not the id of an entry"));
    Id::read(text.as_bytes()).ok_or_else(wrong)
}

/// Beyond it `Instant` may have no moment.
const LONGEST: Duration = Duration::from_secs(1 << 30);
