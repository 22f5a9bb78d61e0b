//! Threads of stores.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use super::store::Host;
use crate::system::signals::BlockedSignals;

/// Starts a named thread; if it panics, the hub is notified.
pub fn begin(
    name: String,
    host: Arc<dyn Host>,
    run: impl FnOnce() + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    // Signals are for the thread that started the hub.
    let _signals = BlockedSignals::block();
    Builder::new().name(name.replace(' ', "-")).spawn(move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            host.broke(format!("{name} has ended because of a bug in the hub: {text}"));
        }
    })
}
