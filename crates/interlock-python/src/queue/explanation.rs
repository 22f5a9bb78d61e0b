//! Explanations and statistics, as plain tuples and dicts from which Python creates its classes.

use interlock_core::queue::calls::roots::{Root, Roots};
use interlock_core::queue::schedules::trace::Runner;
use interlock_core::queue::schedules::trace_text::Schedule;
use interlock_core::queue::types::{Blocker, Explained, LimitFull, Node, ParkedUnder, Stats};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

/// (nodes, truncated); see `interlock.explanation`.
pub fn to_python<'py>(py: Python<'py>, explained: &Explained) -> PyResult<Bound<'py, PyTuple>> {
    let nodes: PyResult<Vec<_>> = explained.nodes.iter().map(|node| to_node(py, node)).collect();
    (nodes?, explained.truncated).into_pyobject(py)
}

fn to_node<'py>(py: Python<'py>, node: &Node) -> PyResult<Bound<'py, PyTuple>> {
    let seconds = |micros: u64| micros as f64 / 1e6;
    let paused: Vec<_> = node.paused.iter().map(|key| PyBytes::new(py, key)).collect();
    let turn =
        node.turn.as_ref().map(|turn| (PyBytes::new(py, &turn.group), turn.ready, turn.ahead));
    let limits: PyResult<Vec<_>> = node.limits.iter().map(|full| to_full(py, full)).collect();
    let blocked: PyResult<Vec<_>> = node.blocked.iter().map(|b| to_blocker(py, b)).collect();
    let parked = node.parked.as_ref().map(|parked| to_parked(py, parked)).transpose()?;
    // A tuple of 13 has no conversion.
    let first = (
        node.id,
        node.state.word(),
        node.attempt,
        seconds(node.age),
        node.consumer,
        node.held_for.map(seconds),
        node.lease_left.map(seconds),
        node.due_in.map(seconds),
        PyTuple::new(py, paused)?,
        PyTuple::new(py, limits?)?,
    );
    let rest = (turn, parked, PyTuple::new(py, blocked?)?).into_pyobject(py)?;
    let node = first.into_pyobject(py)?.as_sequence().concat(rest.as_sequence())?.to_tuple()?;
    Ok(node)
}

fn to_full<'py>(py: Python<'py>, full: &LimitFull) -> PyResult<Bound<'py, PyTuple>> {
    let holders = PyTuple::new(py, &full.holders)?;
    let name = PyBytes::new(py, &full.name);
    let wait = full.wait.map(|micros| micros as f64 / 1e6);
    (name, full.most, full.leased, full.keeper, wait, holders).into_pyobject(py)
}

fn to_parked<'py>(py: Python<'py>, parked: &ParkedUnder) -> PyResult<Bound<'py, PyTuple>> {
    let ParkedUnder { key, age, times, ahead, paused, behind } = parked;
    let (key, behind) = (PyBytes::new(py, key), PyTuple::new(py, behind)?);
    (key, *age as f64 / 1e6, times, ahead, paused, behind).into_pyobject(py)
}

fn to_blocker<'py>(py: Python<'py>, blocker: &Blocker) -> PyResult<Bound<'py, PyTuple>> {
    let key = blocker.key.as_ref().map(|key| PyBytes::new(py, key));
    let holders = PyTuple::new(py, &blocker.holders)?;
    (key, holders, blocker.ahead, blocker.exact).into_pyobject(py)
}

/// (found, exact, rows); see `interlock.roots`.
pub fn roots_to_python<'py>(py: Python<'py>, found: &Roots) -> PyResult<Bound<'py, PyTuple>> {
    let row = |root: &Root| {
        let id = Some(root.id).filter(|&id| id > 0);
        let time = root.time.map(|micros| micros as f64 / 1e6);
        let key = PyBytes::new(py, &root.key);
        (root.kind.word(), id, key, root.depth, time, root.consumer).into_pyobject(py)
    };
    let rows: PyResult<Vec<_>> = found.told.iter().map(row).collect();
    (found.found, found.exact, rows?).into_pyobject(py)
}

/// `ages`: µs of the oldest ready and of the oldest waiting message.
pub fn stats_to_python<'py>(
    py: Python<'py>,
    stats: &Stats,
    ages: [u64; 2],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in stats.named() {
        dict.set_item(name, value)?;
    }
    for (name, age) in ["oldest_ready", "oldest_waiting"].into_iter().zip(ages) {
        dict.set_item(name, age as f64 / 1e6)?;
    }
    Ok(dict)
}

/// Replays a recorded schedule: what the scheduler answers to each call, a line each (clause 20).
#[pyfunction]
pub fn replay(schedule: &str) -> PyResult<Vec<String>> {
    let schedule: Schedule =
        schedule.parse().map_err(|error| PyValueError::new_err(format!("replay(): {error}")))?;
    let mut runner = Runner::of(&schedule);
    Ok(schedule.steps.iter().map(|step| runner.apply(step).to_string()).collect())
}
