// Made by `make generate` from wire/: change that.

//! The first words of errors.

use std::fmt;

/// The reason of a refusal, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// An argument is missing, malformed, too long or unexpected.
    BadArgument,
    /// The call has more messages, keys or settlements than one call may have; a put is larger than
    /// the queue's bound; the queue has the maximum number of workers.
    TooBig,
    /// A put found no room, or room is reserved for an earlier put (clause 11), and its WAIT is
    /// over.
    Full,
    /// A put whose messages wait on a paused or stuck key, while half of the queue's bound is
    /// parked (clause 31). It does not wait for room, whatever its WAIT.
    Stuck,
    /// A put into a sealed queue.
    Sealed,
    /// A put with an option `AFTER` whose dedup string is not known.
    Unknown,
    /// A put would replace the payload of a message (clause 29) that has another set of keys,
    /// priority or limit names.
    Differs,
    /// The call's number is lower than the consumer's last, or was another function's.
    StaleCall,
    /// The queue was declared with other options.
    OptionsMismatch,
    /// This server knows the option but cannot do it.
    NotSupported,
    /// A put at the server's memory limit. Leasing and settling continue, so a full server drains.
    OutOfMemory,
    /// The server's disk is full or has failed, so a change to a durable queue could not be stored.
    /// If the hub's disk is only nearly full, leasing and settling continue and puts are refused; a
    /// put that waits for room continues to wait, and is refused with this code at the end of its
    /// WAIT.
    CannotStore,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Code::BadArgument => "BADARG",
            Code::TooBig => "TOOBIG",
            Code::Full => "FULL",
            Code::Stuck => "STUCK",
            Code::Sealed => "SEALED",
            Code::Unknown => "UNKNOWN",
            Code::Differs => "DIFFERS",
            Code::StaleCall => "STALECALL",
            Code::OptionsMismatch => "OPTIONSMISMATCH",
            Code::NotSupported => "NOTSUPPORTED",
            Code::OutOfMemory => "OOM",
            Code::CannotStore => "MISCONF",
        })
    }
}
