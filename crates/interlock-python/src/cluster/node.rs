//! A node on a log from Python: settings in, figures out. Its thread never enters Python.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use interlock_log::machine::Limits;
use interlock_log::rows;
use interlock_log::stamp::is_name;
use interlock_log::state::Rules;
use interlock_node::files::Reach;
use interlock_node::log::LogPort;
use interlock_node::node::{News, Pace};
use interlock_node::redis;
use interlock_node::running::{difference, Running, Settings};
use interlock_stores::network::Tls;
use interlock_table::{Options, Table};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use crate::cluster::bridge::LogBridge;
use crate::cluster::outside_rows;
use crate::cluster::outside_rows::{BroughtRows, Found, FoundReport, LinkReport};
use crate::hub::keeper::TableKeeper;
use crate::runtime::fork;
use crate::table::{duration, failure, location};

#[pyclass(module = "interlock._core", frozen)]
pub struct LogNode {
    running: Running,
    rows: rows::Settings,
    /// The fork after which it was made: its thread is in that process.
    forks: u32,
}

#[pymethods]
impl LogNode {
    /// Opens the table and the folder, and begins. `settings` has all that is looked up here.
    #[new]
    fn new(
        py: Python<'_>,
        settings: &Bound<'_, PyDict>,
        keeper: &TableKeeper,
    ) -> PyResult<LogNode> {
        let writes = keeper.writes();
        let rows = rows_of(settings)?;
        let (place, is_path): (PathBuf, bool) = (of(settings, "place")?, of(settings, "is_path")?);
        let options = Options {
            capacity: rows.capacity,
            key_size: u32::try_from(rows.key_size).unwrap_or(u32::MAX),
            ttl: (rows.ttl > 0).then(|| Duration::from_millis(rows.ttl)),
            evict: false,
            mode: of(settings, "mode")?,
            keeper: true,
            ..Options::default()
        };
        let schema = rows.rules.schema().clone();
        let location = location(place, is_path);
        let opened = py.detach(|| Table::open(&location, &schema, &options));
        let table = opened.map_err(|error| failure::raised(py, error))?;
        let settings = Settings {
            name: of(settings, "name")?,
            node: of(settings, "node")?,
            machine: of(settings, "machine")?,
            log: log_of(settings)?,
            rows: rows.clone(),
            limits: Limits::default(),
            folder: of(settings, "folder")?,
            pace: Pace {
                timeout: duration(of(settings, "timeout")?),
                checkpoint: of(settings, "checkpoint")?,
                reach: Reach { time: of(settings, "reach")?, ..Reach::default() },
                keep: of(settings, "keep")?,
                acks: of(settings, "acks")?,
                ..Pace::default()
            },
            held: of(settings, "held")?,
        };
        let reads = keeper.keeper();
        let running = py.detach(|| Running::start(settings, table, writes, reads));
        let running = running.map_err(PyOSError::new_err)?;
        Ok(LogNode { running, rows, forks: fork::generation() })
    }

    /// The node as it stands.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.running.figures();
        let standing = figures.standing;
        let told = standing.told;
        let found = PyDict::new(py);
        found.set_item("position", standing.place.mark.position)?;
        found.set_item("log_id", standing.place.id.map(|(ms, number)| format!("{ms}-{number}")))?;
        found.set_item("log_checksum", standing.place.mark.checksum)?;
        found.set_item("rows_checksum", figures.checksum)?;
        found.set_item("log_time", standing.time)?;
        found.set_item("serves", standing.serves)?;
        found.set_item("owes", standing.owes)?;
        found.set_item("drains", standing.drains)?;
        found.set_item("draining", self.running.is_draining())?;
        found.set_item("checkpoint", standing.saved)?;
        found.set_item("rows", figures.rows)?;
        found.set_item("tombstones", figures.tombstones)?;
        found.set_item("tombstones_dropped", figures.dropped)?;
        found.set_item("waiting", figures.waiting)?;
        found.set_item("unacknowledged", standing.unacknowledged)?;
        found.set_item("unacknowledged_answers", standing.lacked)?;
        found.set_item("ring", standing.ring)?;
        found.set_item("clients", standing.clients)?;
        found.set_item("clients_limit", Limits::default().clients)?;
        found.set_item("went_back", told.went_back)?;
        found.set_item("resyncs", told.resyncs)?;
        found.set_item("put_back", told.put_back)?;
        found.set_item("merged_rows", standing.merged)?;
        found.set_item("appended_entries", told.entries)?;
        found.set_item("appended_bytes", told.bytes)?;
        let troubles = told.troubles.into_iter().map(|one| (one.kind, one.text, one.since));
        found.set_item("trouble", troubles.collect::<Vec<_>>())?;
        found.set_item("behind", standing.at_end.map(|at| at.elapsed().as_secs_f64()))?;
        found.set_item("at_end", standing.is_at_end)?;
        let largest = standing.largest.map(|largest| (largest.bytes, largest.setting.to_string()));
        found.set_item("largest", largest)?;
        found.set_item("untrimmed", standing.untrimmed.as_deref())?;
        let keepers = standing.keepers.iter();
        let keepers = keepers.map(|one| (one.node.as_str(), one.machine.as_str(), one.kept));
        found.set_item("keepers", keepers.collect::<Vec<_>>())?;
        found.set_item("cut", standing.cut)?;
        found.set_item("needs_snapshot", figures.needs_snapshot)?;
        found.set_item("ended", self.running.has_ended())?;
        Ok(found)
    }

    /// News since the last call: a word for each, and a text.
    fn news(&self) -> Vec<(&'static str, String)> {
        self.running.news().into_iter().map(|one| self.told(one)).collect()
    }

    /// Waits for more events than those seen, for up to this many seconds; returns their number.
    fn wait_for_event(&self, py: Python<'_>, seen: u64, seconds: f64) -> u64 {
        py.detach(|| self.running.wait_for_event(seen, duration(seconds).min(LONGEST)))
    }

    /// Ends the waits for an event.
    fn wake(&self) {
        self.running.wake();
    }

    /// Returns the rows that a reader lacks who has those up to a position, its checksum, and the
    /// number of a change, up to `most`. Waits for a change for up to this many seconds. None: the
    /// node has not caught up.
    fn changed<'py>(
        &self,
        py: Python<'py>,
        since: (u64, u64, u64),
        most: usize,
        seconds: f64,
    ) -> PyResult<Option<Found<'py>>> {
        outside_rows::changed(py, &self.running, since, most, duration(seconds).min(LONGEST))
    }

    /// Returns the rows that another data centre lacks, up to `most`, and the report for it. `sent`: what was
    /// noted there. Waits for a change for up to this many seconds. None: the node has not caught up.
    fn report<'py>(
        &self,
        py: Python<'py>,
        dc: &str,
        sent: Option<&[u8]>,
        most: usize,
        seconds: f64,
    ) -> PyResult<Option<FoundReport<'py>>> {
        let wait = duration(seconds).min(LONGEST);
        outside_rows::report(py, &self.running, dc, sent, most, wait)
    }

    /// Has all nodes join rows; returns whether they are in this node's state within this many
    /// seconds. If not, appending them again does no harm.
    fn append_states(&self, py: Python<'_>, rows: &BroughtRows, seconds: f64) -> bool {
        outside_rows::append_states(py, &self.running, rows, duration(seconds).min(LONGEST))
    }

    /// Returns an entry with rows for the log of another data centre; without rows, it ends the report.
    fn states_entry<'py>(
        &self,
        py: Python<'py>,
        report: &LinkReport,
        rows: Vec<(PyBackedBytes, PyBackedBytes)>,
    ) -> Bound<'py, PyBytes> {
        outside_rows::states_entry(py, &self.running, report, &rows)
    }

    /// Stops waiting for the checkpoints of a node; returns whether this node has read so within
    /// this many seconds.
    fn forget(&self, py: Python<'_>, node: &str, seconds: f64) -> bool {
        let until = Instant::now() + duration(seconds).min(LONGEST);
        py.detach(|| self.running.forget(node, until))
    }

    /// All that is outside is here: the node serves from now on.
    fn release(&self) {
        self.running.release();
    }

    /// Stops taking writes; returns whether pending ones are answered within this many seconds.
    fn drain(&self, py: Python<'_>, seconds: f64) -> bool {
        let until = Instant::now() + duration(seconds).min(LONGEST);
        py.detach(|| self.running.drain(until))
    }

    /// Returns the file, in its folder, of its newest checkpoint that is in the log, the position
    /// and its checksum; makes one if necessary.
    fn checkpoint(&self) -> Option<(String, u64, u64)> {
        let (path, place) = self.running.checkpoint()?;
        Some((path, place.mark.position, place.mark.checksum))
    }

    /// Has it take a checkpoint of another node, from a file in its folder.
    fn install(&self, path: String) {
        self.running.install(path);
    }

    /// Has it forget its history, and read the log anew.
    fn resync(&self) {
        self.running.resync();
    }

    /// Ends it.
    fn stop(&self, py: Python<'_>) {
        if fork::generation() == self.forks {
            py.detach(|| self.running.stop());
        }
    }
}

impl LogNode {
    fn told(&self, news: News) -> (&'static str, String) {
        match news {
            News::Trouble(trouble) if trouble.kind.is_of_history() => ("log", trouble.text),
            News::Trouble(trouble) => ("engine", trouble.text),
            News::Disk(text) => ("disk", text),
            News::Table(text) => ("table", text),
            News::Lost(text) => ("lost", text),
            News::GoesBack(position) => ("back", position.to_string()),
            News::GoesOn(position) => ("on", position.to_string()),
            News::Stuck => ("stuck", String::new()),
            News::NotInstalled(text) => ("snapshot", text),
            News::ReadersGoBack => ("readers", String::new()),
            News::OtherSettings(theirs) => ("settings", difference(&self.rows, &theirs)),
        }
    }
}

fn rows_of(settings: &Bound<'_, PyDict>) -> PyResult<rows::Settings> {
    let (rules, dc): (String, String) = (of(settings, "rules")?, of(settings, "dc")?);
    if !is_name(dc.as_bytes()) {
        let text = format!("node(): dc is {dc:?}; allowed: 1 to 32 letters, digits, - and _");
        return Err(PyValueError::new_err(text));
    }
    Ok(rows::Settings {
        name: of(settings, "table")?,
        dc,
        rules: Rules::parse(&rules).map_err(|error| PyValueError::new_err(error.to_string()))?,
        capacity: of(settings, "capacity")?,
        centres: of(settings, "centres")?,
        tombstones: of(settings, "tombstones")?,
        key_size: of(settings, "key_size")?,
        ttl: of(settings, "ttl")?,
    })
}

fn log_of(settings: &Bound<'_, PyDict>) -> PyResult<Box<dyn LogPort>> {
    let bridge: Option<Py<LogBridge>> = of(settings, "bridge")?;
    if let Some(bridge) = bridge {
        return bridge.get().near();
    }
    let server: Option<String> = of(settings, "tls")?;
    let ca: Option<Vec<u8>> = of(settings, "ca")?;
    let tls = server.map(|server| Tls::new(&server, ca.as_deref(), None)).transpose();
    let stream: String = of(settings, "stream")?;
    let settings = redis::Settings {
        addresses: of(settings, "addresses")?,
        tls: tls.map_err(PyValueError::new_err)?,
        user: of(settings, "user")?,
        password: of(settings, "password")?,
        database: of(settings, "database")?,
        timeout: duration(of(settings, "engine_timeout")?),
        ..redis::Settings::new("", stream.as_bytes())
    };
    Ok(Box::new(redis::Log::new(settings)))
}

fn of<'py, T: FromPyObjectOwned<'py>>(settings: &Bound<'py, PyDict>, name: &str) -> PyResult<T> {
    let found = settings.get_item(name)?;
    let found = found.ok_or_else(|| PyValueError::new_err(format!("LogNode(): no {name}")))?;
    found.extract().map_err(Into::into)
}

/// Beyond it `Instant` may have no moment.
const LONGEST: Duration = Duration::from_secs(1 << 30);
