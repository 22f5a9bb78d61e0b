//! The files of stores, for those who look at them: without a hub, and without a configuration.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use interlock_stores::disk::folder::Folder;
use interlock_stores::file::{verify_all, Found, Missing, Survey, Verified};
use interlock_stores::{Position, StoreError, Stored};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Reads messages out of the files of stores, and what comes later when it is asked again.
#[pyclass(module = "interlock._core", frozen)]
pub struct StoreFiles {
    read: Mutex<Read>,
    folder: Folder,
    file: Option<String>,
}

struct Read {
    survey: Survey<Folder>,
    /// Gaps that Python has not asked for yet.
    missing: Vec<Missing>,
}

/// A file, the messages in it that are whole, their bytes, those that are not, the places of frames that
/// cannot be read, how many messages are missing, bytes behind the last one, whether it is closed, and
/// whether there is only its index.
type File = (String, u64, u64, Vec<u64>, Vec<u64>, u64, u64, bool, bool);

/// The first and the last position, how many messages, 0 if nobody knows, the file, and the reason.
type Gap = ((u64, u32), (u64, u32), u64, String, &'static str);

/// Position, topic, payload, and µs since 1970.
type Entry<'py> = (u64, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, u64);

/// A path, bytes, and the first position that they can have.
type Trailing = (String, u64, (u64, u32));

/// A path, and the reason why it cannot be read.
type Unreadable = (String, &'static str);

#[pymethods]
impl StoreFiles {
    /// `path` is a folder, or a file: its data, packed or not, or its index.
    #[new]
    #[pyo3(signature = (path, topic = None, position = (0, 0)))]
    fn new(path: PathBuf, topic: Option<Vec<u8>>, position: (u64, u32)) -> PyResult<Self> {
        let (folder, file) = placed(&path);
        let from = Position::new(position.0, position.1);
        let survey = Survey::new(folder.clone(), file.as_deref(), topic.as_deref(), from);
        let read = Mutex::new(Read { survey, missing: Vec::new() });
        Ok(StoreFiles { read, folder, file })
    }

    /// Returns the next messages, up to `most`; an empty list if there are none yet.
    fn next<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Vec<Entry<'py>>> {
        let found = py.detach(|| {
            let mut read = self.read();
            let (mut found, mut bytes) = (Vec::new(), 0);
            while found.len() < most && bytes < MOST {
                match read.survey.next()? {
                    Some(Found::Message(stored)) => {
                        bytes += stored.payload.len();
                        found.push(stored);
                    }
                    Some(Found::Missing(missing)) => read.missing.push(missing),
                    None => break,
                }
            }
            Ok(found)
        });
        let entry = |stored: Stored| {
            let Position { ms, n } = stored.position;
            let (topic, payload) = (&stored.topic, &stored.payload);
            (ms, n, PyBytes::new(py, topic), PyBytes::new(py, payload), stored.time)
        };
        found.map(|found| found.into_iter().map(entry).collect()).map_err(raised)
    }

    /// Returns what `next` found missing since it was asked last.
    fn missing(&self) -> Vec<Gap> {
        std::mem::take(&mut self.read().missing).into_iter().map(gap).collect()
    }

    /// Returns the unreadable files, as far as `next` has looked.
    fn unreadable(&self) -> Vec<Unreadable> {
        self.read().survey.unreadable()
    }

    /// Returns the bytes after the last message of each newest file.
    fn trailing(&self) -> PyResult<Vec<Trailing>> {
        let all = self.read().survey.trailing().map_err(raised)?;
        Ok(all.into_iter().map(|(path, bytes, at)| (path, bytes, pair(at))).collect())
    }

    /// Compares each file with its checksums, and with the next.
    fn verify(&self, py: Python<'_>) -> PyResult<(Vec<File>, Vec<Gap>, Vec<Unreadable>)> {
        let file = |one: Verified| {
            let path = described(&self.folder, &one.path);
            let Verified { messages, bytes, changed, unreadable, missing, .. } = one;
            let Verified { trailing, closed, gone, .. } = one;
            (path, messages, bytes, changed, unreadable, missing, trailing, closed, gone)
        };
        py.detach(|| {
            let all = verify_all(&self.folder, self.file.as_deref())?;
            let files = all.files.into_iter().map(file).collect();
            Ok((files, all.missing.into_iter().map(gap).collect(), all.unreadable))
        })
        .map_err(raised)
    }
}

impl StoreFiles {
    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pair(position: Position) -> (u64, u32) {
    (position.ms, position.n)
}

fn gap(missing: Missing) -> Gap {
    (pair(missing.from), pair(missing.to), missing.messages, missing.file, missing.why)
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
