//! A hub's settings from the mapping that Python has checked.

use std::sync::Arc;

use interlock_core::clock::Clock;
use interlock_engine::{Account, Durability};
use interlock_hub::access::users::{Commands, Patterns, Rules, User, Users};
use interlock_hub::net::tls;
use interlock_hub::shared::settings::{Live, OutputLimit, Settings, SlowLog};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::hub::stores;
use crate::runtime::clock::ManualClock;

pub fn read(given: &Bound<'_, PyDict>) -> PyResult<Settings> {
    let mut settings = Settings { live: read_live(given)?, ..Settings::default() };
    for (key, value) in given {
        let key: String = key.extract()?;
        let at = |error| wrong(given.py(), &key, &error);
        match key.as_str() {
            "host" => settings.host = value.extract().map_err(at)?,
            "port" => settings.port = value.extract().map_err(at)?,
            "port_speaks_tls" => settings.port_speaks_tls = value.extract().map_err(at)?,
            "tls_port" => settings.tls_port = value.extract().map_err(at)?,
            "unix" => settings.unix = value.extract().map_err(at)?,
            "unix_mode" => settings.unix_mode = value.extract().map_err(at)?,
            "inherited" => settings.inherited = value.extract().map_err(at)?,
            "journal" => settings.journal = value.extract().map_err(at)?,
            "durability" => settings.durability = durability(&value).map_err(at)?,
            "clock" => settings.clock = clock_of(&value).map_err(at)?,
            "repair" => settings.repair = value.extract().map_err(at)?,
            "ignore_case_topics" => {
                settings.ignore_case_topics = value.extract().map_err(at)?;
            }
            "workers" => settings.workers = value.extract().map_err(at)?,
            "stores" => settings.stores = stores::read(given)?,
            "controlled" => settings.controlled = value.extract().map_err(at)?,
            key if LIVE.contains(&key) => {}
            _ => {
                let text = format!("HubServer(): settings has no key {key:?}");
                return Err(PyValueError::new_err(text));
            }
        }
    }
    Ok(settings)
}

/// Reads the settings that may change while the hub runs; other keys are passed over.
pub fn read_live(given: &Bound<'_, PyDict>) -> PyResult<Live> {
    let mut live = Live::default();
    for (key, value) in given {
        let key: String = key.extract()?;
        let at = |error| wrong(given.py(), &key, &error);
        match key.as_str() {
            "maxclients" => live.maxclients = value.extract().map_err(at)?,
            "max_per_address" => live.max_per_address = value.extract().map_err(at)?,
            "query_limit" => live.query_limit = value.extract().map_err(at)?,
            "frame_limit" => live.frame_limit = value.extract().map_err(at)?,
            "idle_timeout" => live.idle_timeout = value.extract().map_err(at)?,
            "login_timeout" => live.login_timeout = value.extract().map_err(at)?,
            "slow_log" => {
                let (threshold, length) = value.extract().map_err(at)?;
                live.slow_log = SlowLog { threshold, length };
            }
            "log_repeats" => live.log_repeats = value.extract().map_err(at)?,
            "queues_memory" => live.queues_memory = value.extract().map_err(at)?,
            "normal" => live.normal = limit(&value).map_err(at)?,
            "pubsub" => live.pubsub = limit(&value).map_err(at)?,
            "subscriptions" => live.subscriptions = value.extract().map_err(at)?,
            "clients_memory" => live.clients_memory = value.extract().map_err(at)?,
            "users" => live.users = users(&value).map_err(at)?,
            "tls" => live.tls = certificates(&value).map_err(at)?,
            "shown" => live.shown = value.extract().map_err(at)?,
            _ => {}
        }
    }
    // Longer ones have no place in a 32-bit offset.
    let longest = 1 << 31;
    live.frame_limit = live.frame_limit.min(longest);
    live.query_limit = live.query_limit.min(longest as usize);
    Ok(live)
}

/// A `ManualClock`, or `None` for the system's.
fn clock_of(value: &Bound<'_, PyAny>) -> PyResult<Clock> {
    let given: Option<Bound<'_, ManualClock>> = value.extract()?;
    Ok(given.map_or(Clock::System, |clock| clock.get().clock.clone()))
}

fn durability(value: &Bound<'_, PyAny>) -> PyResult<Durability> {
    match value.extract()? {
        "always" => Ok(Durability::Always),
        "everysec" => Ok(Durability::EverySecond),
        "none" => Ok(Durability::None),
        other => Err(PyValueError::new_err(format!("{other:?} is not a durability"))),
    }
}

/// `[soft, soft_seconds, hard]`.
fn limit(value: &Bound<'_, PyAny>) -> PyResult<OutputLimit> {
    let [soft, soft_seconds, hard]: [u64; 3] = value.extract()?;
    Ok(OutputLimit { soft: soft as usize, soft_seconds, hard: hard as usize })
}

type Given = (
    String,
    bool,
    Option<Vec<String>>,
    Vec<Vec<u8>>,
    Vec<Vec<u8>>,
    Vec<Vec<u8>>,
    Vec<Vec<u8>>,
    Vec<String>,
    usize,
    u64,
);

/// Reads for each user: name, whether it needs no password, commands or `None` for all, and
/// patterns of topics to publish to and subscribe to, of queues, and of tables; then the rules for
/// its commands, the number of its passwords, and the bytes that those queues may take, 0 for any
/// number.
fn users(value: &Bound<'_, PyAny>) -> PyResult<Users> {
    let given: Vec<Given> = value.extract()?;
    let user = |given: Given| {
        let (name, open, commands, publish, subscribe, queues, tables, rules, passwords, most) =
            given;
        let commands = match commands {
            None => Commands::All,
            Some(names) => Commands::these(names.iter().map(String::as_str))
                .map_err(|name| PyValueError::new_err(format!("there is no command {name:?}")))?,
        };
        let [publish, subscribe, queues, tables] =
            [publish, subscribe, queues, tables].map(Patterns::these);
        let declared = Rules { commands: rules, passwords, ..Rules::default() };
        let account = (most > 0).then(|| Arc::new(Account::new(most)));
        Ok(User { name, open, commands, publish, subscribe, queues, tables, account, declared })
    };
    let users: PyResult<Vec<User>> = given.into_iter().map(user).collect();
    Ok(Users::new(users?))
}

/// The texts of the files `cert`, `key` and `client_ca`, or `None`.
fn certificates(value: &Bound<'_, PyAny>) -> PyResult<Option<Tls>> {
    type Texts = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);
    let Some((certificates, key, authorities)) = value.extract::<Option<Texts>>()? else {
        return Ok(None);
    };
    let config = tls::config(&certificates, &key, authorities.as_deref());
    config.map(Some).map_err(PyValueError::new_err)
}

type Tls = Arc<tls::ServerConfig>;

fn wrong(py: Python<'_>, key: &str, error: &PyErr) -> PyErr {
    let text = format!("{key}: {}", error.value(py));
    if error.is_instance_of::<PyValueError>(py) {
        return PyValueError::new_err(text);
    }
    PyTypeError::new_err(format!("HubServer(): {text}"))
}

const LIVE: &[&str] = &[
    "maxclients",
    "max_per_address",
    "query_limit",
    "frame_limit",
    "idle_timeout",
    "login_timeout",
    "slow_log",
    "log_repeats",
    "queues_memory",
    "normal",
    "pubsub",
    "subscriptions",
    "clients_memory",
    "users",
    "tls",
    "shown",
];
