//! The thread that keeps the journal: what is to be on disk each second, the next segment before it is
//! needed, and snapshots, so that old records can go. No worker waits for it.

use std::sync::Arc;
use std::time::Duration;

use interlock_engine::durable::Durable;

use crate::server::stop::Stop;
use crate::shared::events::Level;
use crate::shared::Shared;
use crate::system::time::now;

/// Until it is stopped; then all is on disk, and nothing is recorded any more.
pub fn keep(shared: &Shared, durable: &Arc<Durable>, stop: &Stop) {
    let log = |level, text: String| shared.events.log(level, format!("journal: {text}"));
    let mut troubled = false;
    while !stop.within(TICK) {
        durable.note_time(&shared.queues.engine, shared.queues.now());
        let kept = durable.upkeep(&shared.queues.engine, now());
        match &kept {
            Ok(Some(Ok(made))) => {
                let (queues, bytes) = (made.queues, made.bytes);
                log(Level::Info, format!("a snapshot of {queues} queues, {bytes} bytes"));
            }
            Ok(Some(Err(error))) => {
                let text = "no snapshot could be written, so old segments are kept";
                log(Level::Warning, format!("{text}: {error}"));
            }
            Ok(None) if troubled => log(Level::Info, "it accepts records again".into()),
            // Said once: it lasts until somebody does something.
            Err(refused) if !troubled => log(Level::Warning, refused.to_string()),
            _ => {}
        }
        troubled = kept.is_err();
    }
    let closed = durable.close(shared.queues.now());
    if let Err(refused) = closed {
        log(Level::Warning, format!("at the end: {refused}"));
    }
}

const TICK: Duration = Duration::from_millis(100);
