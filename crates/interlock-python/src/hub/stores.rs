//! A hub's stores from the mappings that Python has checked.

use std::time::Duration;

use interlock_hub::stores::{
    Acknowledgement, Child, FileSettings, Filter, Full, NetworkSettings, SpoolSettings, StoreKind,
    StoreSettings,
};
use interlock_stores::calendar::Zone;
use interlock_stores::file::{Fsync, Retention, Rotation};
use interlock_stores::network::{self, Protocol, Tls};
use interlock_stores::Template;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Reads the stores under the key `stores`, which may be missing.
pub fn read(given: &Bound<'_, PyDict>) -> PyResult<Vec<StoreSettings>> {
    let Some(stores) = given.get_item("stores")? else { return Ok(Vec::new()) };
    let stores: Vec<Bound<'_, PyDict>> = stores.extract()?;
    stores.iter().map(one).collect()
}

/// Returns why a path is not a template; the host's name may appear in it.
pub fn refused(path: &str, store: &str) -> Option<String> {
    Template::parse(path, "host", store, Zone::Utc).err()
}

fn one(given: &Bound<'_, PyDict>) -> PyResult<StoreSettings> {
    let (name, word): (String, String) = (of(given, "name")?, of(given, "kind")?);
    let kind = kind(given, &name)?;
    let full: String = of(given, "full")?;
    let full = match full.as_str() {
        // The spool is before it then.
        "wait" | "spool" => Full::Wait,
        "drop" => Full::Drop,
        _ => return Err(unknown("full", &full)),
    };
    let ack: String = of(given, "ack")?;
    let acknowledges = match ack.as_str() {
        "none" => Acknowledgement::None,
        "memory" => Acknowledgement::Memory,
        "disk" => Acknowledgement::Disk,
        "upstream" => Acknowledgement::Upstream,
        _ => return Err(unknown("ack", &ack)),
    };
    type Globs = Vec<Vec<u8>>;
    let filters: Vec<(Globs, Globs)> = of(given, "filters")?;
    let filters = filters.into_iter().map(|(topics, exclude)| Filter { topics, exclude }).collect();
    let queue = of(given, "queue")?;
    Ok(StoreSettings { name, word, filters, queue, full, acknowledges, kind })
}

/// A store with those below it, and its spool before it.
fn kind(given: &Bound<'_, PyDict>, name: &str) -> PyResult<StoreKind> {
    let word: String = of(given, "kind")?;
    let children = || -> PyResult<Vec<Child>> {
        let children: Vec<Bound<'_, PyDict>> = of(given, "children")?;
        let child = |given: &Bound<'_, PyDict>| {
            let name: String = of(given, "name")?;
            Ok(Child { kind: kind(given, &name)?, name })
        };
        children.iter().map(child).collect()
    };
    let kind = match word.as_str() {
        "file" => StoreKind::File(file(given, name)?),
        "null" => StoreKind::Null,
        "network" => StoreKind::Network(network(given, name)?),
        "priority" => StoreKind::Priority(children()?),
        "multiple" => StoreKind::Multiple(children()?),
        // Its spool is what it is.
        "buffer" => {
            let below = children()?.pop().ok_or_else(|| PyKeyError::new_err("store: children"))?;
            let before = given.get_item("spool")?;
            let before = before.ok_or_else(|| PyKeyError::new_err("store: spool"))?;
            return Ok(StoreKind::Spool(spool(before.cast()?)?, Box::new(below)));
        }
        _ => return Err(unknown("kind", &word)),
    };
    match given.get_item("spool")? {
        None => Ok(kind),
        Some(before) => {
            let child = Child { name: name.into(), kind };
            Ok(StoreKind::Spool(spool(before.cast()?)?, Box::new(child)))
        }
    }
}

fn spool(given: &Bound<'_, PyDict>) -> PyResult<SpoolSettings> {
    let (folder, bytes) = (of(given, "folder")?, of(given, "bytes")?);
    Ok(SpoolSettings { folder, bytes, fsync: sync(given)? })
}

fn network(given: &Bound<'_, PyDict>, name: &str) -> PyResult<NetworkSettings> {
    let (address, shown): (String, String) = (of(given, "address")?, of(given, "shown")?);
    let word: String = of(given, "protocol")?;
    let protocol = match word.as_str() {
        "relay" => Protocol::Relay,
        "publish" => Protocol::Publish,
        "xadd" => Protocol::Xadd,
        _ => return Err(unknown("protocol", &word)),
    };
    // None: plain bytes.
    let server: Option<String> = of(given, "tls")?;
    let [ca, cert, key]: [Option<Vec<u8>>; 3] =
        [of(given, "ca")?, of(given, "cert")?, of(given, "key")?];
    let tls = match &server {
        None => None,
        Some(server) => {
            let identity = cert.as_deref().zip(key.as_deref());
            let tls = Tls::new(server, ca.as_deref(), identity);
            Some(tls.map_err(|why| PyValueError::new_err(format!("store {name}: {why}")))?)
        }
    };
    let [user, password]: [Option<String>; 2] = [of(given, "user")?, of(given, "password")?];
    let seconds: f64 = of(given, "timeout")?;
    let declared =
        format!("{:?}", (&address, &word, &user, &password, seconds, &server, ca, cert, key));
    let timeout = Duration::from_secs_f64(seconds);
    let upstream = network::Settings {
        tls,
        user,
        password,
        timeout,
        ..network::Settings::new(&address, protocol, 0)
    };
    Ok(NetworkSettings { upstream, shown, declared })
}

fn file(given: &Bound<'_, PyDict>, name: &str) -> PyResult<FileSettings> {
    let (path, host): (String, String) = (of(given, "path")?, of(given, "host")?);
    let zone = if of(given, "local")? { Zone::Local } else { Zone::Utc };
    let template = Template::parse(&path, &host, name, zone).map_err(PyValueError::new_err)?;
    let fsync = sync(given)?;
    let rotation =
        Rotation { size: of(given, "rotate_bytes")?, minutes: of(given, "rotate_minutes")? };
    let retention = Retention { age: of(given, "keep")?, bytes: of(given, "keep_bytes")? };
    let compression = of(given, "compress")?;
    Ok(FileSettings { template, fsync, rotation, retention, compression })
}

fn sync(given: &Bound<'_, PyDict>) -> PyResult<Fsync> {
    let word: String = of(given, "sync")?;
    match word.as_str() {
        "always" => Ok(Fsync::Always),
        "everysec" => Ok(Fsync::EverySecond),
        "no" => Ok(Fsync::Never),
        _ => Err(unknown("sync", &word)),
    }
}

fn of<'py, T>(given: &Bound<'py, PyDict>, key: &str) -> PyResult<T>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    let value = given.get_item(key)?;
    value.ok_or_else(|| PyKeyError::new_err(format!("store: {key}")))?.extract()
}

fn unknown(key: &str, word: &str) -> PyErr {
    PyValueError::new_err(format!("store: {key} is {word:?}"))
}
