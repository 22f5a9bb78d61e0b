//! The hub from Python: settings in, counters out. Its threads never enter Python.

pub(super) mod keeper;
mod settings;
mod stores;
pub(super) mod tables;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use interlock_hub::catalog::{self, Command};
use interlock_hub::command::info;
use interlock_hub::server::Server;
use interlock_hub::shared::events::{Answer, Asker, Change, Event, Level, Question};
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::Shared;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

use crate::hub::settings::{read, read_live};
use crate::hub::tables::HubTables;
use crate::runtime::fork;

#[pyclass(module = "interlock._core", frozen)]
pub struct HubServer {
    settings: Settings,
    server: std::sync::Mutex<Option<Server>>,
    addresses: std::sync::Mutex<Vec<String>>,
    /// State of the started server; it remains when the server has stopped.
    shared: OnceLock<Arc<Shared>>,
    /// The fork after which it was made: its threads are in that process.
    forks: u32,
}

#[pymethods]
impl HubServer {
    #[new]
    fn new(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (server, addresses, shared) = Default::default();
        let forks = fork::generation();
        Ok(HubServer { settings: read(settings)?, server, addresses, shared, forks })
    }

    /// Name and categories of each command; those of a container begin with its name and `|`.
    #[staticmethod]
    fn commands() -> Vec<(&'static str, Vec<&'static str>)> {
        let declared = |command: &'static Command| (command.name, command.categories.to_vec());
        catalog::all()
            .flat_map(|command| [command].into_iter().chain(command.subcommands))
            .map(declared)
            .collect()
    }

    /// Returns why a path is not a template for a store's files; `None` if it is one.
    #[staticmethod]
    fn refused_path(path: &str, store: &str) -> Option<String> {
        stores::refused(path, store)
    }

    /// Binds and starts the threads; serves the tables, if there are any.
    #[pyo3(signature = (tables = None))]
    fn start(&self, py: Python<'_>, tables: Option<&HubTables>) -> PyResult<()> {
        if self.shared.get().is_some() {
            return Err(PyRuntimeError::new_err("the hub was already started"));
        }
        let mut settings = self.settings.clone();
        settings.live.tables = tables.map(HubTables::served).unwrap_or_default();
        let started = py.detach(|| Server::start(settings));
        // With the system's number, so that Python chooses the class: PermissionError, ...
        let started = started.map_err(|error| match error_number(&error) {
            Some(number) => PyOSError::new_err((number, error.to_string())),
            None => PyOSError::new_err(error.to_string()),
        })?;
        *self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            started.addresses().to_vec();
        let _ = self.shared.set(started.shared().clone());
        *self.lock() = Some(started);
        Ok(())
    }

    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Stops the hub, and returns the number of connections that were cut. A hub that does not run
    /// has none.
    #[pyo3(signature = (seconds = 0.0))]
    fn stop(&self, py: Python<'_>, seconds: f64) -> PyResult<u64> {
        let patience = Duration::try_from_secs_f64(seconds.min(FOREVER));
        let patience = patience.map_err(|_| {
            PyValueError::new_err(format!("stop(): seconds is {seconds}; allowed: 0 and more"))
        })?;
        if fork::generation() != self.forks {
            return Ok(0);
        }
        let server = self.lock().take();
        Ok(server.map_or(0, |mut server| py.detach(move || server.stop(patience))))
    }

    /// Other limits, users and certificates, from now on. The rest of `settings` is not looked at.
    /// With `keep_users` those that are there stay, and the passwords that were found right. Tables stay
    /// unless others are given.
    #[pyo3(signature = (settings, keep_users = false, tables = None))]
    fn apply(
        &self,
        settings: &Bound<'_, PyDict>,
        keep_users: bool,
        tables: Option<&HubTables>,
    ) -> PyResult<()> {
        let mut live = read_live(settings)?;
        if let Some(shared) = self.shared.get() {
            live.tables = tables.map_or_else(|| shared.live().tables.clone(), HubTables::served);
            if keep_users {
                live.users = shared.live().users.clone();
            }
            let stores = stores::read(settings)?;
            shared.apply_stores(stores).map_err(PyErr::from)?;
            shared.apply(live);
        }
        Ok(())
    }

    /// Readable while there are events; -1 of a hub that was not started.
    fn fileno(&self) -> i32 {
        self.shared.get().map_or(-1, |shared| shared.events.descriptor())
    }

    /// Returns the events since the last call, the number of log lines dropped for lack of room,
    /// and whether lines were left out that a later call sums up; `last`: there is no later call.
    #[pyo3(signature = (last = false))]
    fn events<'py>(
        &self,
        py: Python<'py>,
        last: bool,
    ) -> PyResult<(Vec<Bound<'py, PyTuple>>, u64, bool)> {
        let taken = self.shared.get().map(|shared| shared.events.take(last)).unwrap_or_default();
        let events: PyResult<Vec<_>> =
            taken.events.into_iter().map(|event| shown(py, event)).collect();
        Ok((events?, taken.lost, taken.owes))
    }

    /// Returns whether the asker of a question of `events` is still there.
    fn waits(&self, asker: (usize, u64, u64)) -> bool {
        self.shared.get().is_some_and(|shared| shared.registry.holds(asker.2))
    }

    /// Answers a question of `events`; `error` is its refusal.
    #[pyo3(signature = (asker, error = None))]
    fn answer(&self, asker: (usize, u64, u64), error: Option<String>) {
        let (worker, token, id) = asker;
        if let Some(shared) = self.shared.get() {
            let answer = error.map_or(Answer::Accepted, Answer::Refused);
            shared.answer(Asker { worker, token, id }, answer);
        }
    }

    /// Returns the number of beats each worker has answered; empty before the start.
    fn beats(&self) -> Vec<u64> {
        self.shared.get().map_or_else(Vec::new, |shared| shared.beats.answered())
    }

    /// Sends each worker a beat; answers of each whether it has answered the one before.
    fn pulse(&self) -> Vec<bool> {
        self.shared.get().map_or_else(Vec::new, |shared| shared.pulse())
    }

    /// Returns the figures of each table, by its name.
    fn tables<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        if let Some(shared) = self.shared.get() {
            for (name, figures) in py.detach(|| info::tables(shared)) {
                all.set_item(name, figures.into_iter().collect::<HashMap<_, _>>())?;
            }
        }
        Ok(all)
    }

    /// Returns the figures of up to `most` queues, by their names, and the number of queues.
    fn queues<'py>(&self, py: Python<'py>, most: usize) -> PyResult<(Bound<'py, PyDict>, usize)> {
        let all = PyDict::new(py);
        let Some(shared) = self.shared.get() else { return Ok((all, 0)) };
        let (queues, count) = py.detach(|| info::queues(shared, most));
        for (name, figures) in queues {
            let told = PyDict::new(py);
            for (figure, value) in figures {
                told.set_item(PyString::intern(py, figure), value)?;
            }
            all.set_item(name, told)?;
        }
        for (name, figures) in py.detach(|| info::stalls(shared, most)) {
            if let Some(told) = all.get_item(name)? {
                for (figure, value) in figures {
                    told.set_item(PyString::intern(py, figure), value)?;
                }
            }
        }
        Ok((all, count))
    }

    /// Returns the figures of each store, by its name.
    fn stores<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let all = PyDict::new(py);
        if let Some(shared) = self.shared.get() {
            for (name, figures) in py.detach(|| info::stores(shared)) {
                all.set_item(name, figures.into_iter().collect::<HashMap<_, _>>())?;
            }
        }
        Ok(all)
    }

    /// Stores begin new files, where there are messages in the old ones.
    fn rotate(&self) {
        if let Some(shared) = self.shared.get() {
            shared.stores.rotate();
        }
    }

    /// Returns what INFO shows; numbers as numbers.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        if let Some(shared) = self.shared.get() {
            for (name, value) in py.detach(|| info::flat(shared)) {
                if let Ok(number) = value.parse::<u64>() {
                    info.set_item(name, number)?;
                } else if let (true, Ok(number)) = (is_decimal(&value), value.parse::<f64>()) {
                    info.set_item(name, number)?;
                } else {
                    info.set_item(name, value)?;
                }
            }
        }
        Ok(info)
    }
}

impl HubServer {
    /// Held for moments only, and never without the GIL: who waits for one holds not the other.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for HubServer {
    /// A forked child has none of the threads, and shares the sockets with its parent.
    fn drop(&mut self) {
        if fork::generation() != self.forks {
            std::mem::forget(self.lock().take());
        }
    }
}

/// `("log", level, text)`, or the question's name, who asks, and what belongs to it.
fn shown<'py>(py: Python<'py>, event: Event) -> PyResult<Bound<'py, PyTuple>> {
    let (asker, question) = match event {
        Event::Log { level, text } => {
            let level = match level {
                Level::Info => "info",
                Level::Warning => "warning",
            };
            return ("log", level, text).into_pyobject(py);
        }
        Event::Audit(change) => {
            let shown = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes);
                let escaped =
                    |c: char| if c.is_control() { c.escape_debug().to_string() } else { c.into() };
                text.chars().map(escaped).collect::<String>()
            };
            let (queue, what) = (shown(&change.queue), shown(&change.what));
            let Change { user, address, action, result, .. } = *change;
            return ("audit", user, address, action, queue, what, result).into_pyobject(py);
        }
        Event::Broken { text } => return ("broken", text).into_pyobject(py),
        Event::Question { asker, question } => {
            ((asker.worker, asker.token, asker.id).into_pyobject(py)?, question)
        }
    };
    match question {
        Question::Password { host, user, password } => {
            let (user, password) = (PyBytes::new(py, &user), PyBytes::new(py, &password));
            ("password", asker, (host, user, password)).into_pyobject(py)
        }
        Question::Set(pairs) => {
            let pair = |(name, value): (Vec<u8>, Vec<u8>)| {
                (PyBytes::new(py, &name), PyBytes::new(py, &value))
            };
            let pairs: Vec<_> = pairs.into_iter().map(pair).collect();
            ("set", asker, pairs).into_pyobject(py)
        }
        Question::Reload => ("reload", asker, ()).into_pyobject(py),
        Question::Shutdown => ("shutdown", asker, ()).into_pyobject(py),
    }
}

/// Digits, and one point among them.
fn is_decimal(value: &str) -> bool {
    let value = value.strip_prefix('-').unwrap_or(value);
    value.split('.').count() == 2 && value.bytes().all(|b| b == b'.' || b.is_ascii_digit())
}

fn error_number(error: &std::io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let source = error.get_ref()?.source()?;
        source.downcast_ref::<std::io::Error>()?.raw_os_error()
    })
}

/// s; more than a run lasts, and less than a duration can hold.
const FOREVER: f64 = 1e9;
