// Made by `make generate` from wire/: change that.

//! The numbers of the journal's records, which never change.

use super::functions::Function;

/// The content of a record: a call that changed something, or what else is to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recorded {
    /// A call of this function was made, with these arguments.
    Call(Function),
    /// Everything that was due was applied.
    Tick,
    /// A call that waited was answered, perhaps with nothing; or a call got nothing, and set
    /// messages aside. Its arguments: `FUNCTION CONSUMER CALL COUNT DURATION KIND`.
    Granted,
    /// An `il1_next` has settled its messages, and waits. Its arguments: `CONSUMER CALL
    /// SETTLEMENT...`.
    Parked,
    /// An `il1_purge` has cancelled these messages. Its arguments: `ID...`.
    Purged,
    /// The queue has become durable, as it was dumped. Its arguments: `BYTES`.
    State,
    /// The queue is no longer durable.
    Forgotten,
    /// Number of messages that the next call may make ready, and of messages that it may park,
    /// return, bury or cancel behind a failure, and their keys; what was due took the rest. Older
    /// records have no MOVES and KEYS. Its arguments: `READY STEPS MOVES KEYS`.
    Budget,
}

impl Recorded {
    pub fn name(self) -> &'static str {
        match self {
            Recorded::Call(function) => function.name(),
            Recorded::Tick => "tick",
            Recorded::Granted => "granted",
            Recorded::Parked => "parked",
            Recorded::Purged => "purged",
            Recorded::State => "state",
            Recorded::Forgotten => "forgotten",
            Recorded::Budget => "budget",
        }
    }

    /// Returns its number; `None`: a function that changes nothing.
    pub fn number(self) -> Option<u8> {
        Some(match self {
            Recorded::Call(function) => return function.record(),
            Recorded::Tick => 1,
            Recorded::Granted => 2,
            Recorded::Parked => 3,
            Recorded::Purged => 4,
            Recorded::State => 5,
            Recorded::Forgotten => 6,
            Recorded::Budget => 7,
        })
    }

    /// Finds the one that has a number.
    pub fn of_number(number: u8) -> Option<Recorded> {
        Some(match number {
            1 => Recorded::Tick,
            2 => Recorded::Granted,
            3 => Recorded::Parked,
            4 => Recorded::Purged,
            5 => Recorded::State,
            6 => Recorded::Forgotten,
            7 => Recorded::Budget,
            16 => Recorded::Call(Function::Put),
            17 => Recorded::Call(Function::Lease),
            18 => Recorded::Call(Function::Settle),
            19 => Recorded::Call(Function::Next),
            20 => Recorded::Call(Function::Extend),
            21 => Recorded::Call(Function::Configure),
            22 => Recorded::Call(Function::Cancel),
            23 => Recorded::Call(Function::Revoke),
            24 => Recorded::Call(Function::Retry),
            25 => Recorded::Call(Function::Skip),
            26 => Recorded::Call(Function::Bury),
            27 => Recorded::Call(Function::Requeue),
            28 => Recorded::Call(Function::Purge),
            29 => Recorded::Call(Function::Pause),
            30 => Recorded::Call(Function::Resume),
            31 => Recorded::Call(Function::Seal),
            32 => Recorded::Call(Function::Reopen),
            33 => Recorded::Call(Function::Restore),
            34 => Recorded::Call(Function::Drop),
            35 => Recorded::Call(Function::Discard),
            36 => Recorded::Call(Function::Forget),
            _ => return None,
        })
    }
}
