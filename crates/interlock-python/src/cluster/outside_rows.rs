//! Rows between a node on a log and places outside, in Python: databases and links.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use interlock_log::codec::Reader as BytesReader;
use interlock_log::entry::Mark;
use interlock_log::heard::Sent;
use interlock_log::rows::{Comparison, Held, Image};
use interlock_node::node::{Changes, Lacking, Reader, Reported, Stand};
use interlock_node::running::Running;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// A row, and the number of its last change.
type Row<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64);

/// A place of a history: position, checksum, lineage, log time in ms, number of the last change.
type Place = (u64, u64, u64, u64, u64);

/// All rows of a node as they were at one moment.
#[pyclass(module = "interlock._core", frozen)]
pub struct RowsImage {
    image: Image,
    comparison: Mutex<Option<Arc<Mutex<Comparison>>>>,
}

/// The rows of another place that differ: those with something that is lacking here, for entries, those here with something
/// that is lacking there, and keys that are not known here.
type Differing<'py> = (Vec<BroughtRows>, Vec<Row<'py>>, Vec<Bound<'py, PyBytes>>);

/// A key and a state.
type Pair = (Box<[u8]>, Box<[u8]>);

/// Rows of another place that are not copied into Python, as many as one entry has.
#[pyclass(module = "interlock._core", frozen)]
#[derive(Default)]
pub struct BroughtRows {
    rows: Vec<Pair>,
    bytes: usize,
}

impl BroughtRows {
    fn put(parts: &mut Vec<BroughtRows>, key: &[u8], state: &[u8]) {
        if parts.last().is_none_or(|last| last.bytes >= MOST_BROUGHT) {
            parts.push(BroughtRows::default());
        }
        if let Some(last) = parts.last_mut() {
            last.rows.push((key.into(), state.into()));
            last.bytes += key.len() + state.len();
        }
    }
}

#[pymethods]
impl BroughtRows {
    fn __len__(&self) -> usize {
        self.rows.len()
    }
}

#[pymethods]
impl RowsImage {
    /// Returns the rows that changed behind a number, in the order of their last change.
    fn since(&self, py: Python<'_>, number: u64) -> RowsIterator {
        let rows = py.detach(|| self.image.since(number));
        RowsIterator { rows: Mutex::new(rows.into_iter()) }
    }

    /// Compares rows of another place, each key once in all calls. `joined`: what they have was joined before;
    /// where it differs nevertheless, they lack the row here.
    #[pyo3(signature = (rows, joined=false))]
    fn compare<'py>(
        &self,
        py: Python<'py>,
        rows: Vec<(PyBackedBytes, PyBackedBytes)>,
        joined: bool,
    ) -> Differing<'py> {
        self.compared(py, &borrowed(&rows), joined)
    }

    /// Compares the rows of a COPY in PostgreSQL's binary format, of two columns: key and state. It has whole rows, without
    /// the header and the end.
    #[pyo3(signature = (copied, joined=false))]
    fn compare_copied<'py>(
        &self,
        py: Python<'py>,
        copied: &[u8],
        joined: bool,
    ) -> PyResult<Differing<'py>> {
        let rows = py.detach(|| rows_of_copy(copied));
        let rows = rows.ok_or_else(|| PyValueError::new_err("no rows of COPY with two columns"))?;
        Ok(self.compared(py, &rows, joined))
    }

    /// Returns the rows that were not compared.
    fn rest(&self, py: Python<'_>) -> RowsIterator {
        let comparison = self.comparison(py);
        let rows: Vec<Held> = py.detach(|| lock(&comparison).rest().collect());
        RowsIterator { rows: Mutex::new(rows.into_iter()) }
    }
}

impl RowsImage {
    fn compared<'py>(
        &self,
        py: Python<'py>,
        rows: &[(&[u8], &[u8])],
        is_joined: bool,
    ) -> Differing<'py> {
        let comparison = self.comparison(py);
        let (mut brought, mut lacking, mut strange) = (Vec::new(), Vec::new(), Vec::new());
        py.detach(|| {
            let mut comparison = lock(&comparison);
            for (key, state) in rows {
                let Some(found) = comparison.row(key, state, is_joined) else { continue };
                if found.brings {
                    BroughtRows::put(&mut brought, key, state);
                }
                lacking.extend(found.lacks);
                if found.is_unknown {
                    strange.push(*key);
                }
            }
        });
        let lacks = lacking.iter().map(|held| row(py, held)).collect();
        let unknown = strange.into_iter().map(|key| PyBytes::new(py, key)).collect();
        (brought, lacks, unknown)
    }
}

/// The rows of a COPY: of each the number of its columns, and before each of these its length.
fn rows_of_copy(mut copied: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    fn field<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (length, rest) = from.split_first_chunk()?;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        let (field, rest) = rest.split_at_checked(length)?;
        *from = rest;
        Some(field)
    }
    let mut rows = Vec::with_capacity(copied.len() / 128);
    while !copied.is_empty() {
        copied = copied.strip_prefix(&2u16.to_be_bytes())?;
        rows.push((field(&mut copied)?, field(&mut copied)?));
    }
    Some(rows)
}

impl RowsImage {
    pub fn new(image: Image) -> RowsImage {
        RowsImage { image, comparison: Mutex::new(None) }
    }

    fn comparison(&self, py: Python<'_>) -> Arc<Mutex<Comparison>> {
        py.detach(|| {
            let mut made = lock(&self.comparison);
            let comparison = made
                .get_or_insert_with(|| Arc::new(Mutex::new(Comparison::new(self.image.clone()))));
            comparison.clone()
        })
    }
}

/// Rows, taken out many at once.
#[pyclass(module = "interlock._core", frozen)]
pub struct RowsIterator {
    rows: Mutex<std::vec::IntoIter<Held>>,
}

#[pymethods]
impl RowsIterator {
    /// Returns the next rows, up to `most`.
    fn take<'py>(&self, py: Python<'py>, most: usize) -> Vec<Row<'py>> {
        let rows: Vec<Held> = lock(&self.rows).by_ref().take(most).collect();
        rows.iter().map(|held| row(py, held)).collect()
    }
}

/// The answer of `LogNode.changed`: the place with these rows, the number of the last change of all, and
/// `rows`: what is lacking; `behind`: the image has it; `all`: the image is to be compared, for rows are
/// forgotten that changed since; `other`: the same, for the place that was asked for may be of another history.
pub type Found<'py> = (Place, u64, &'static str, Vec<Row<'py>>, Option<Bound<'py, RowsImage>>);

/// Report to another data centre, for the entries with the rows that it lacks.
#[pyclass(module = "interlock._core", frozen)]
pub struct LinkReport {
    reported: Reported,
    /// The place with these rows.
    #[pyo3(get)]
    position: u64,
    #[pyo3(get)]
    number: u64,
    /// The number of the last change of all.
    #[pyo3(get)]
    last: u64,
    /// It must be sent even without rows.
    #[pyo3(get)]
    is_due: bool,
    /// The other data centre has rows of a history that the log has lost.
    #[pyo3(get)]
    has_lost: bool,
}

#[pymethods]
impl LinkReport {
    /// Bytes of the note to keep once everything is sent.
    fn sent<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut bytes = Vec::new();
        Sent { number: self.number, ..self.reported.report.sent.clone() }.encode(&mut bytes);
        PyBytes::new(py, &bytes)
    }
}

/// The answer of `LogNode.report`.
pub type FoundReport<'py> =
    (Bound<'py, LinkReport>, &'static str, Vec<Row<'py>>, Option<Bound<'py, RowsImage>>);

pub fn changed<'py>(
    py: Python<'py>,
    running: &Running,
    since: (u64, u64, u64),
    most: usize,
    wait: Duration,
) -> PyResult<Option<Found<'py>>> {
    let (position, checksum, number) = since;
    let reader = Reader::Database { mark: Mark { position, checksum }, number };
    let until = Instant::now() + wait;
    let found = py.detach(|| running.changes(reader, most, until));
    let Some(Changes { stand, last, lacking, .. }) = found else { return Ok(None) };
    let (kind, rows, image) = told(py, lacking)?;
    Ok(Some((place(stand), last, kind, rows, image)))
}

/// Returns the rows that another data centre lacks, given the note of the last report, and the next report.
pub fn report<'py>(
    py: Python<'py>,
    running: &Running,
    dc: &str,
    sent: Option<&[u8]>,
    most: usize,
    wait: Duration,
) -> PyResult<Option<FoundReport<'py>>> {
    let sent = sent
        .map(|bytes| Sent::decode(&mut BytesReader::new(bytes)))
        .transpose()
        .map_err(|_| PyValueError::new_err("this is not what a data centre notes"))?;
    let reader = Reader::Centre { dc: dc.to_owned(), sent };
    let until = Instant::now() + wait;
    let found = py.detach(|| running.changes(reader, most, until));
    let Some(Changes { stand, last, lacking, report: Some(reported) }) = found else {
        return Ok(None);
    };
    let (kind, rows, image) = told(py, lacking)?;
    let (is_due, has_lost) = (reported.report.is_due, reported.report.has_lost);
    let (position, number) = (stand.mark.position, stand.number);
    let report = LinkReport { reported, position, number, last, is_due, has_lost };
    Ok(Some((Bound::new(py, report)?, kind, rows, image)))
}

type Told<'py> = (&'static str, Vec<Row<'py>>, Option<Bound<'py, RowsImage>>);

fn told<'py>(py: Python<'py>, lacking: Lacking) -> PyResult<Told<'py>> {
    let (kind, rows, image) = match lacking {
        Lacking::Rows(rows) => ("rows", rows, None),
        Lacking::Behind(image) => ("behind", Vec::new(), Some(image)),
        Lacking::All { image, is_known: true } => ("all", Vec::new(), Some(image)),
        Lacking::All { image, is_known: false } => ("other", Vec::new(), Some(image)),
    };
    let rows = rows.iter().map(|held| row(py, held)).collect();
    let image = image.map(|image| Bound::new(py, RowsImage::new(image))).transpose()?;
    Ok((kind, rows, image))
}

pub fn append_states(
    py: Python<'_>,
    running: &Running,
    brought: &BroughtRows,
    wait: Duration,
) -> bool {
    let until = Instant::now() + wait;
    py.detach(|| {
        let rows: Vec<_> = brought.rows.iter().map(|(key, state)| (&**key, &**state)).collect();
        running.bring(&rows, until)
    })
}

/// An entry of rows for the log of another data centre.
pub fn states_entry<'py>(
    py: Python<'py>,
    running: &Running,
    report: &LinkReport,
    rows: &[(PyBackedBytes, PyBackedBytes)],
) -> Bound<'py, PyBytes> {
    let entry = py.detach(|| running.states_entry(&report.reported, &borrowed(rows)));
    PyBytes::new(py, &entry)
}

fn borrowed(rows: &[(PyBackedBytes, PyBackedBytes)]) -> Vec<(&[u8], &[u8])> {
    rows.iter().map(|(key, state)| (&**key, &**state)).collect()
}

fn place(stand: Stand) -> Place {
    let Stand { mark, number, lineage, time } = stand;
    (mark.position, mark.checksum, lineage, time, number)
}

fn row<'py>(py: Python<'py>, held: &Held) -> Row<'py> {
    (PyBytes::new(py, held.key()), PyBytes::new(py, held.state()), held.number())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes of rows after which an entry is full: every engine takes twice as many.
const MOST_BROUGHT: usize = 1 << 19;
