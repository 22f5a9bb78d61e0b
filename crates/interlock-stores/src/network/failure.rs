//! Errors of an upstream: where, what was said, and what to do.

use std::io;

use crate::error::StoreError;
use crate::network::settings::{Protocol, Settings};

/// The system's error, or that of TLS.
pub fn broken(settings: &Settings, doing: &str, error: io::Error) -> StoreError {
    let place = format!("upstream {}", settings.address);
    let error = match error.kind() {
        io::ErrorKind::TimedOut => {
            let seconds = settings.timeout.as_secs_f64();
            io::Error::new(error.kind(), format!("nothing moved for {seconds} s"))
        }
        io::ErrorKind::UnexpectedEof => {
            io::Error::new(error.kind(), "the connection was closed there")
        }
        _ => error,
    };
    let advice = match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "start the upstream, or correct its address: waiting messages are kept, and sent then"
        }
        io::ErrorKind::TimedOut => {
            "check that the machine can be reached, and that its stores have space: waiting \
             messages are kept, and sent then"
        }
        io::ErrorKind::InvalidData => {
            "check what is there: an upstream without TLS, with a certificate for another name \
             or of another authority, or something else; waiting messages are kept"
        }
        io::ErrorKind::Interrupted => "waiting messages are kept",
        io::ErrorKind::UnexpectedEof
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionAborted => {
            "check its log if this continues: waiting messages are kept, and sent again"
        }
        _ => "check the address and the network: waiting messages are kept, and sent then",
    };
    StoreError::advised(doing, &place, error, advice)
}

/// The upstream sent something that is not a reply.
pub fn garbled(settings: &Settings, doing: &str) -> StoreError {
    let error = io::Error::new(io::ErrorKind::InvalidData, "it does not speak the Redis protocol");
    broken(settings, doing, error)
}

/// The upstream refused the request.
pub fn refused(settings: &Settings, doing: &str, text: &str) -> StoreError {
    let (kind, advice) = meaning(settings.protocol, text);
    let place = format!("upstream {}", settings.address);
    let error = io::Error::new(kind, format!("it said: {}", crate::printable(text)));
    StoreError::advised(doing, &place, error, advice)
}

fn meaning(protocol: Protocol, text: &str) -> (io::ErrorKind, &'static str) {
    let lower = text.to_ascii_lowercase();
    let said = |word: &str| text.starts_with(word);
    let is_unknown = lower.starts_with("err unknown command");
    if is_unknown && protocol == Protocol::Relay {
        let advice = "it is not a hub that accepts RELAY: for a Redis or a Valkey set protocol = \
             \"publish\" or \"xadd\"; waiting messages are kept";
        return (io::ErrorKind::Unsupported, advice);
    }
    if is_unknown {
        let advice =
            "it does not know that command: a hub accepts protocol = \"relay\"; waiting messages \
             are kept";
        return (io::ErrorKind::Unsupported, advice);
    }
    if said("NOAUTH") {
        let advice =
            "it requires a password: give one with the upstream's address; waiting messages are \
             kept";
        return (io::ErrorKind::PermissionDenied, advice);
    }
    if said("WRONGPASS") || lower.contains("invalid password") || lower.contains("err auth") {
        let advice = "correct the user or the password of the upstream: waiting messages are kept";
        return (io::ErrorKind::PermissionDenied, advice);
    }
    if said("NOPERM") {
        let advice = "give that user there the right to the command and to publish to the topic, \
                      or exclude the topic here: waiting messages are kept, and sent then";
        return (io::ErrorKind::PermissionDenied, advice);
    }
    if said("READONLY") {
        let advice = "it is a replica: name its primary; waiting messages are kept";
        return (io::ErrorKind::ReadOnlyFilesystem, advice);
    }
    if said("WRONGTYPE") {
        let advice = "that topic is a key of another type there: remove it, or exclude the topic \
                      here; waiting messages are kept";
        return (io::ErrorKind::InvalidData, advice);
    }
    if said("ERR Protocol error") {
        let advice =
            "a message is longer than it takes: raise frame_limit there; waiting messages are \
             kept";
        return (io::ErrorKind::InvalidInput, advice);
    }
    if ["OOM", "MISCONF", "LOADING", "BUSY", "MASTERDOWN"].into_iter().any(said) {
        let advice = "it accepts nothing at the moment: waiting messages are kept, and sent then";
        return (io::ErrorKind::ResourceBusy, advice);
    }
    (io::ErrorKind::Other, "check its log: waiting messages are kept, and tried again")
}
