//! The hub from Python: settings in, counters out. Its threads never enter Python.

use std::sync::Arc;
use std::time::Duration;

use interlock_hub::beat;
use interlock_hub::info;
use interlock_hub::server::Server;
use interlock_hub::settings::{OutputLimit, Settings};
use interlock_hub::shared::Shared;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

#[pyclass(module = "interlock._core", frozen)]
pub struct HubServer {
    settings: Settings,
    server: std::sync::Mutex<Option<Server>>,
    /// For looking at it, also while `stop` has the server.
    shared: std::sync::Mutex<Option<Arc<Shared>>>,
    addresses: std::sync::Mutex<Vec<String>>,
    /// The process whose hub it is.
    pid: u32,
}

#[pymethods]
impl HubServer {
    #[new]
    fn new(settings: &Bound<'_, PyDict>) -> PyResult<Self> {
        let (server, shared, addresses) = Default::default();
        let settings = read(settings)?;
        Ok(HubServer { settings, server, shared, addresses, pid: std::process::id() })
    }

    /// Binds and starts the threads.
    fn start(&self, py: Python<'_>) -> PyResult<()> {
        if self.lock().is_some() {
            return Err(PyRuntimeError::new_err("the hub was started already"));
        }
        let settings = self.settings.clone();
        let started = py.detach(|| Server::start(settings));
        // With the system's number, so that Python chooses the class: PermissionError, ...
        let started = started.map_err(|error| match error_number(&error) {
            Some(number) => PyOSError::new_err((number, error.to_string())),
            None => PyOSError::new_err(error.to_string()),
        })?;
        *self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            started.addresses().to_vec();
        *self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            Some(started.handle());
        *self.lock() = Some(started);
        Ok(())
    }

    #[getter]
    fn addresses(&self) -> Vec<String> {
        self.addresses.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// How many connections were cut. A hub that does not run has none.
    #[pyo3(signature = (seconds = 0.0))]
    fn stop(&self, py: Python<'_>, seconds: f64) -> PyResult<u64> {
        let patience = Duration::try_from_secs_f64(seconds.min(FOREVER));
        let patience = patience.map_err(|_| {
            PyValueError::new_err(format!("stop(): seconds is {seconds}; allowed: 0 and more"))
        })?;
        if std::process::id() != self.pid {
            return Ok(0);
        }
        let server = self.lock().take();
        Ok(server.map_or(0, |mut server| py.detach(move || server.stop(patience))))
    }

    /// How many beats each worker has answered; empty before the start.
    fn beats(&self) -> Vec<u64> {
        self.shared().map_or_else(Vec::new, |shared| shared.beats.answered())
    }

    /// Sends each worker a beat; answers of each whether it has answered the one before.
    fn pulse(&self) -> Vec<bool> {
        self.shared().map_or_else(Vec::new, |shared| beat::pulse(&shared))
    }

    /// What INFO shows; numbers as numbers.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = PyDict::new(py);
        if let Some(shared) = self.shared() {
            for (name, value) in py.detach(|| info::flat(&shared)) {
                match value.parse::<u64>() {
                    Ok(number) => info.set_item(name, number)?,
                    Err(_) => info.set_item(name, value)?,
                }
            }
        }
        Ok(info)
    }
}

impl HubServer {
    fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Held for moments only, and never without the GIL: who waits for one holds not the other.
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Server>> {
        self.server.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for HubServer {
    /// In the child of a fork there are none of the threads, and the sockets are the parent's too.
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            std::mem::forget(self.lock().take());
        }
    }
}

fn read(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut settings = Settings::default();
    for (key, value) in given {
        let key: String = key.extract()?;
        let at = |error: PyErr| {
            let text = format!("HubServer(): {key}: {}", error.value(given.py()));
            PyTypeError::new_err(text)
        };
        match key.as_str() {
            "host" => settings.host = value.extract().map_err(at)?,
            "port" => settings.port = value.extract().map_err(at)?,
            "unix" => settings.unix = value.extract().map_err(at)?,
            "inherited" => settings.inherited = value.extract().map_err(at)?,
            "workers" => settings.workers = value.extract().map_err(at)?,
            "maxclients" => settings.maxclients = value.extract().map_err(at)?,
            "max_per_address" => settings.max_per_address = value.extract().map_err(at)?,
            "query_limit" => settings.query_limit = value.extract().map_err(at)?,
            "frame_limit" => settings.frame_limit = value.extract().map_err(at)?,
            "idle_timeout" => settings.idle_timeout = value.extract().map_err(at)?,
            "normal" => settings.normal = limit(&value).map_err(at)?,
            "pubsub" => settings.pubsub = limit(&value).map_err(at)?,
            _ => {
                let text = format!("HubServer(): settings has no key {key:?}");
                return Err(PyValueError::new_err(text));
            }
        }
    }
    // Longer ones have no place in a 32-bit offset.
    let longest = 1 << 31;
    settings.frame_limit = settings.frame_limit.min(longest);
    settings.query_limit = settings.query_limit.min(longest as usize);
    Ok(settings)
}

/// `[soft, soft_seconds, hard]`.
fn limit(value: &Bound<'_, PyAny>) -> PyResult<OutputLimit> {
    let [soft, soft_seconds, hard]: [u64; 3] = value.extract()?;
    Ok(OutputLimit { soft: soft as usize, soft_seconds, hard: hard as usize })
}

fn error_number(error: &std::io::Error) -> Option<i32> {
    error.raw_os_error().or_else(|| {
        let source = error.get_ref()?.source()?;
        source.downcast_ref::<std::io::Error>()?.raw_os_error()
    })
}

/// s; more than a run lasts, and less than a duration can hold.
const FOREVER: f64 = 1e9;
