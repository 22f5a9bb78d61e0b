//! The files of stores, for those who look at them: without a hub, and without a configuration.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{survey, verify, Survey};
use interlock_stores::{Position, StoreError};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Reads messages out of the files of stores, and what comes later when it is asked again.
#[pyclass(module = "interlock._core", frozen)]
pub struct StoreFiles {
    survey: Mutex<Survey<Folder>>,
    folder: Folder,
    file: Option<String>,
}

/// A file, the messages in it that are whole, their bytes, those that are not, the places of frames that
/// cannot be read, how many messages are missing, and whether it is closed.
type Verified = (String, u64, u64, Vec<u64>, Vec<u64>, u64, bool);

/// Position, topic, payload, and µs since 1970.
type Read<'py> = (u64, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64);

#[pymethods]
impl StoreFiles {
    /// `path` is a folder, or a file: its data, packed or not, or its index.
    #[new]
    #[pyo3(signature = (path, topic = None, position = (0, 0)))]
    fn new(path: PathBuf, topic: Option<Vec<u8>>, position: (u64, u32)) -> PyResult<Self> {
        let (folder, file) = placed(&path);
        let from = Position::new(position.0, position.1);
        let survey = Survey::new(folder.clone(), file.as_deref(), topic.as_deref(), from);
        Ok(StoreFiles { survey: Mutex::new(survey), folder, file })
    }

    /// Returns the next messages, up to so many; none: there are none yet.
    fn next<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<Read<'py>>> {
        let found = py.detach(|| {
            let mut survey = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
            let (mut found, mut bytes) = (Vec::new(), 0);
            while found.len() < most && bytes < MOST {
                let Some(stored) = survey.next()? else { break };
                bytes += stored.payload.len();
                found.push(stored);
            }
            Ok(found)
        });
        let read = |stored: interlock_stores::Stored| {
            let Position { ms, n } = stored.position;
            let (topic, payload) = (&stored.topic, &stored.payload);
            (ms, n, PyBytes::new(py, topic), PyBytes::new(py, payload), stored.time)
        };
        found.map(|found| found.into_iter().map(read).collect()).map_err(raised)
    }

    /// Returns how many messages could not be read, and were left out by `next`.
    fn lost(&self) -> u64 {
        self.survey.lock().unwrap_or_else(PoisonError::into_inner).lost()
    }

    /// Compares each file with its checksums. And the indexes of which not even the head can be read.
    fn verify(&self, py: Python<'_>) -> PyResult<(Vec<Verified>, Vec<String>)> {
        py.detach(|| {
            let found = survey(&self.folder, self.file.as_deref())?;
            let files = found.chains.iter().flat_map(|chain| &chain.files);
            let verified = files.map(|listed| {
                let one = verify(&self.folder, &listed.path)?;
                let (path, closed) = (described(&self.folder, &one.path), one.closed);
                let (changed, unreadable) = (one.changed, one.unreadable);
                Ok((path, one.messages, one.bytes, changed, unreadable, one.missing, closed))
            });
            Ok((verified.collect::<Result<_, StoreError>>()?, found.unreadable))
        })
        .map_err(raised)
    }
}

/// The folder of a path, and the file in it that is meant.
fn placed(path: &Path) -> (Folder, Option<String>) {
    match (path.is_file(), path.file_name().and_then(|name| name.to_str())) {
        (true, Some(name)) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            (Folder::new(folder.unwrap_or(Path::new("."))), Some(name.to_owned()))
        }
        _ => (Folder::new(path), None),
    }
}

fn described(folder: &Folder, path: &str) -> String {
    interlock_stores::disk::Disk::describe(folder, path)
}

fn raised(error: StoreError) -> PyErr {
    let text = format!("{}: {}", error.doing, error.error);
    match error.error.raw_os_error() {
        Some(number) => PyOSError::new_err((number, text)),
        None => PyOSError::new_err(text),
    }
}

/// Bytes of the payloads that are read at once, about.
const MOST: usize = 4 << 20;
