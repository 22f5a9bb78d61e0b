//! Threads of stores.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::store::Host;
use crate::signals::BlockedSignals;

/// Begins a thread, which is told of as this; if it ends by a fault of its own, the hub hears of it.
pub fn begin(
    told: String,
    host: Arc<dyn Host>,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    // Signals are for the thread that started the hub.
    let _signals = BlockedSignals::block();
    Builder::new().name(told.replace(' ', "-")).spawn(move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            host.broke(format!("{told} has ended by a fault of the hub: {text}"));
        }
    })
}
