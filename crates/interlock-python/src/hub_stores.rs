//! A hub's stores from the mappings that Python has checked.

use interlock_hub::stores::{Acknowledgement, FileSettings, Full, StoreKind, StoreSettings};
use interlock_stores::calendar::Zone;
use interlock_stores::file::{Fsync, Retention, Rotation};
use interlock_stores::Template;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Reads those under the key `stores`; without it there are none.
pub fn read(given: &Bound<'_, PyDict>) -> PyResult<Vec<StoreSettings>> {
    let Some(stores) = given.get_item("stores")? else { return Ok(Vec::new()) };
    let stores: Vec<Bound<'_, PyDict>> = stores.extract()?;
    stores.iter().map(one).collect()
}

/// Returns why a path is no template; the host's name may stand in it.
pub fn refused(path: &str, store: &str) -> Option<String> {
    Template::parse(path, "host", store, Zone::Utc).err()
}

fn one(given: &Bound<'_, PyDict>) -> PyResult<StoreSettings> {
    let name: String = of(given, "name")?;
    let word: String = of(given, "kind")?;
    let kind = match word.as_str() {
        "file" => StoreKind::File(file(given, &name)?),
        "null" => StoreKind::Null,
        _ => return Err(unknown("kind", &word)),
    };
    let word: String = of(given, "full")?;
    let full = match word.as_str() {
        "wait" => Full::Wait,
        "drop" => Full::Drop,
        _ => return Err(unknown("full", &word)),
    };
    let word: String = of(given, "ack")?;
    let acknowledges = match word.as_str() {
        "none" => Acknowledgement::None,
        "memory" => Acknowledgement::Memory,
        "disk" => Acknowledgement::Disk,
        _ => return Err(unknown("ack", &word)),
    };
    let topics = of(given, "topics")?;
    let (exclude, queue) = (of(given, "exclude")?, of(given, "queue")?);
    Ok(StoreSettings { name, topics, exclude, queue, full, acknowledges, kind })
}

fn file(given: &Bound<'_, PyDict>, name: &str) -> PyResult<FileSettings> {
    let (path, host): (String, String) = (of(given, "path")?, of(given, "host")?);
    let zone = if of(given, "local")? { Zone::Local } else { Zone::Utc };
    let template = Template::parse(&path, &host, name, zone).map_err(PyValueError::new_err)?;
    let word: String = of(given, "sync")?;
    let fsync = match word.as_str() {
        "always" => Fsync::Always,
        "everysec" => Fsync::EverySecond,
        "no" => Fsync::Never,
        _ => return Err(unknown("sync", &word)),
    };
    let rotation =
        Rotation { size: of(given, "rotate_bytes")?, minutes: of(given, "rotate_minutes")? };
    let retention = Retention { age: of(given, "keep")?, bytes: of(given, "keep_bytes")? };
    let compression = of(given, "compress")?;
    Ok(FileSettings { template, fsync, rotation, retention, compression })
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
