//! Checkpoints are encoded and written by a thread, while the loop goes on.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use interlock_log::checkpoint::Later;
use interlock_stores::disk::Disk;

use crate::files::{Checkpoints, Point};

pub struct Saver<D: Disk> {
    checkpoints: Arc<Mutex<Checkpoints<D>>>,
    saving: Option<Saving>,
    /// The time that the last one took.
    pub took: Duration,
}

struct Saving {
    position: u64,
    since: Instant,
    is_cancelled: Arc<AtomicBool>,
    thread: JoinHandle<Result<(), String>>,
}

impl<D: Disk> Saver<D> {
    pub fn new(checkpoints: Checkpoints<D>) -> Saver<D> {
        Saver { checkpoints: Arc::new(Mutex::new(checkpoints)), saving: None, took: Duration::ZERO }
    }

    /// The checkpoints that are there; one that is being written is waited for.
    pub fn checkpoints(&self) -> MutexGuard<'_, Checkpoints<D>> {
        lock(&self.checkpoints)
    }

    pub fn is_busy(&self) -> bool {
        self.saving.is_some()
    }

    /// Begins to write a checkpoint. Errors: there is no thread for it.
    pub fn begin(&mut self, point: Point, later: Later) -> Result<(), String> {
        let (checkpoints, cancelled) = (self.checkpoints.clone(), Arc::new(AtomicBool::new(false)));
        let is_cancelled = cancelled.clone();
        let write = move || {
            let bytes = later();
            let mut checkpoints = lock(&checkpoints);
            if cancelled.load(SeqCst) {
                return Ok(());
            }
            checkpoints.save(point, &bytes).map_err(|error| error.to_string())
        };
        let thread = std::thread::Builder::new().name("node-checkpoint".into()).spawn(write);
        let thread = thread.map_err(|error| format!("a thread for a checkpoint: {error}"))?;
        let (position, since) = (point.place.mark.position, Instant::now());
        self.saving = Some(Saving { position, since, is_cancelled, thread });
        Ok(())
    }

    /// The position of the checkpoint that is written since the last call, or why it is not.
    pub fn done(&mut self) -> Option<Result<u64, String>> {
        let Saving { position, since, is_cancelled, thread } =
            self.saving.take_if(|saving| saving.thread.is_finished())?;
        self.took = since.elapsed();
        let done = thread.join().unwrap_or_else(|_| Err("a checkpoint: its thread failed".into()));
        (!is_cancelled.load(SeqCst)).then_some(done.map(|()| position))
    }

    /// The history of the one that is being written is not the log's any more.
    pub fn cancel(&self) {
        if let Some(saving) = &self.saving {
            saving.is_cancelled.store(true, SeqCst);
        }
    }
}

impl<D: Disk> Drop for Saver<D> {
    /// Nobody else may have the folder before.
    fn drop(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.thread.join();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
