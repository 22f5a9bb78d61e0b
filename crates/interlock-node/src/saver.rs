//! A thread that encodes and writes checkpoints while the loop continues.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use interlock_log::checkpoint::Later;
use interlock_stores::disk::Disk;

use crate::files::{Checkpoints, Point, Unsynced};

pub struct Saver<D: Disk> {
    checkpoints: Arc<Mutex<Checkpoints<D>>>,
    saving: Option<Saving>,
    /// Duration of the last checkpoint.
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

    /// The existing checkpoints; waits for one that is being written.
    pub fn checkpoints(&self) -> MutexGuard<'_, Checkpoints<D>> {
        lock(&self.checkpoints)
    }

    pub fn is_busy(&self) -> bool {
        self.saving.is_some()
    }

    /// Begins to write a checkpoint, once the ring is on disk. Errors: the thread cannot be started.
    pub fn begin(&mut self, point: Point, later: Later, ring: Unsynced<D>) -> Result<(), String> {
        let (checkpoints, cancelled) = (self.checkpoints.clone(), Arc::new(AtomicBool::new(false)));
        let is_cancelled = cancelled.clone();
        let write = move || {
            ring.sync().map_err(|error| error.to_string())?;
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

    /// The position of the checkpoint written since the last call, or the reason why it failed.
    pub fn done(&mut self) -> Option<Result<u64, String>> {
        let Saving { position, since, is_cancelled, thread } =
            self.saving.take_if(|saving| saving.thread.is_finished())?;
        self.took = since.elapsed();
        let done = thread.join().unwrap_or_else(|_| Err("a checkpoint: its thread failed".into()));
        (!is_cancelled.load(SeqCst)).then_some(done.map(|()| position))
    }

    /// Cancels the checkpoint being written: its history is no longer the log's.
    pub fn cancel(&self) {
        if let Some(saving) = &self.saving {
            saving.is_cancelled.store(true, SeqCst);
        }
    }
}

impl<D: Disk> Drop for Saver<D> {
    /// Waits for the thread: until it ends, no other process may lock the folder.
    fn drop(&mut self) {
        if let Some(saving) = self.saving.take() {
            let _ = saving.thread.join();
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
