//! The tables that a hub is to serve: opened one by one before the hub gets them, so that the
//! caller learns for each why it cannot be served.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use interlock_hub::tables::served::{ServedTable, Tables};
use interlock_table::{Options, Schema, Table};
use pyo3::prelude::*;

use crate::hub::keeper::TableKeeper;
use crate::table::{duration, failure, location};

#[pyclass(module = "interlock._core", frozen)]
#[derive(Default)]
pub struct HubTables {
    tables: Mutex<Vec<Arc<ServedTable>>>,
}

#[pymethods]
impl HubTables {
    #[new]
    fn new() -> HubTables {
        HubTables::default()
    }

    /// Opens a table, or makes it, to be served under a name. Raises as a table that is opened does.
    ///
    /// With a keeper the hub itself does not write to it.
    ///
    /// Returns how the table differs in what its creator alone can say: its capacity, whether it gives way
    /// when full, and how long a row lives, in seconds or None.
    #[pyo3(signature = (
        name, place, is_path, schema, capacity, key_size, ttl, evict, writers, mode, keeper = None
    ))]
    #[allow(clippy::too_many_arguments)] // They come from one place, which names them.
    fn open(
        &self,
        py: Python<'_>,
        name: String,
        place: PathBuf,
        is_path: bool,
        schema: &str,
        capacity: u64,
        key_size: u32,
        ttl: Option<f64>,
        evict: bool,
        writers: u32,
        mode: u32,
        keeper: Option<&TableKeeper>,
    ) -> PyResult<(u64, bool, Option<f64>)> {
        let location = location(place, is_path);
        let options = Options {
            capacity,
            key_size,
            ttl: ttl.map(duration),
            evict,
            writers,
            mode,
            keeper: keeper.is_some(),
            ..Options::default()
        };
        let opened = py.detach(|| Table::open(&location, &Schema::parse(schema)?, &options));
        let table = opened.map_err(|error| failure::raised(py, error))?;
        let made = table.made();
        let lives = (made.ttl != 0).then(|| made.ttl as f64 / 1e9);
        let differs = (made.capacity, made.evict, lives);
        let served = match keeper {
            Some(keeper) => {
                ServedTable::written(name, &table, keeper.writes(), Some(keeper.keeper()))
            }
            None => ServedTable::new(name, &table),
        };
        self.lock().push(served);
        Ok(differs)
    }

    /// Reuses a table that `others` have open under this name. False: they have none, or it was removed.
    fn keep(&self, others: &HubTables, name: &str) -> bool {
        let found = others.lock().iter().find(|table| table.name == name).cloned();
        let found = found.filter(|table| table.table().has_name());
        found.map(|table| self.lock().push(table)).is_some()
    }
}

impl HubTables {
    pub fn served(&self) -> Tables {
        Tables::new(self.lock().iter().cloned())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<ServedTable>>> {
        self.tables.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
