//! Creates the sinks of declared stores.

use super::fan_out_sink::{Multiple, Named, Priority};
use super::file_sink::FileSink;
use super::network_sink::NetworkSink;
use super::settings::{Child, StoreKind};
use super::sink::{NullSink, Sink};
use super::spool_sink::SpoolSink;
use super::store::Surroundings;

/// Creates the sink of a store; nothing is opened yet. `sender`: the origin of the spool before it, or 0.
pub fn build(name: &str, kind: &StoreKind, sender: u128, around: &Surroundings) -> Box<dyn Sink> {
    let children = |children: &[Child]| -> Vec<Named> {
        let sink =
            |child: &Child| (child.name.clone(), build(&child.name, &child.kind, sender, around));
        children.iter().map(sink).collect()
    };
    match kind {
        StoreKind::File(settings) => Box::new(FileSink::new(name, settings, around.clone())),
        StoreKind::Null => Box::new(NullSink),
        StoreKind::Network(settings) => Box::new(NetworkSink::new(settings, sender, around)),
        StoreKind::Priority(below) => Box::new(Priority::new(children(below), around.clone())),
        StoreKind::Multiple(below) => Box::new(Multiple::new(children(below))),
        StoreKind::Spool(settings, child) => {
            Box::new(SpoolSink::new(settings, child, build, around.clone()))
        }
    }
}
