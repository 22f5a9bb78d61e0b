//! Problems of an engine and its log, in words that say what to do.

use std::fmt;

/// The reason why the log cannot be read or appended to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub kind: Kind,
    /// Without the engine's address and the stream's name.
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// No connection: it cannot be made, was closed, or does not answer.
    Unreachable,
    /// The other side does not speak the Redis protocol, or its reply does not fit the request.
    NotUnderstood,
    /// User or password is wrong, or is required.
    Login,
    /// The user may not run a command or use the stream.
    Denied,
    /// The engine is a replica: the node neither writes to it nor reads from it.
    NotPrimary,
    /// The engine's maxmemory-policy may evict the stream.
    Evicts,
    /// The engine is loading its data.
    Loading,
    /// The engine refuses writes because it cannot save.
    CannotSave,
    OutOfMemory,
    /// The key holds something other than a stream.
    WrongType,
    /// Another error of the engine.
    Refused,
    /// The entry read last is missing or has been replaced, and the log ends before it or continues
    /// without it.
    Forked,
    /// The log begins after the entry read last, or does not begin with its first entry.
    Trimmed,
    /// The log does not exist.
    Gone,
}

impl Kind {
    /// Returns whether the entries read so far may no longer be part of the log: the reader must
    /// choose where to continue. All other troubles are retried.
    pub fn is_of_history(self) -> bool {
        matches!(self, Kind::Forked | Kind::Trimmed | Kind::Gone)
    }
}

impl Trouble {
    pub fn new(kind: Kind, text: impl Into<String>) -> Trouble {
        Trouble { kind, text: text.into() }
    }

    /// Interprets an error reply of the engine to a command.
    pub fn of(command: &str, error: &[u8]) -> Trouble {
        let text = String::from_utf8_lossy(&error[..error.len().min(MOST)]);
        let text = text.as_ref();
        let code = text.split(' ').next().unwrap_or_default();
        let (kind, what) = match code {
            "WRONGPASS" => (Kind::Login, "check user and password in the engine's address"),
            "NOAUTH" => (Kind::Login, "give user and password in the engine's address"),
            "ERR" if text.contains("without any password configured") => {
                (Kind::Login, "leave the password out of the engine's address, or set one there")
            }
            "NOPERM" => return Trouble::new(Kind::Denied, denied(command, text)),
            "READONLY" | "UNBLOCKED" => {
                (Kind::NotPrimary, "it is a replica: name the primary, or wait for the failover")
            }
            "LOADING" => (Kind::Loading, "it loads its data: this is tried again"),
            "MISCONF" => {
                (Kind::CannotSave, "it cannot save to its disk: see its log, and free or repair the disk")
            }
            "OOM" => (Kind::OutOfMemory, "its memory is full: raise maxmemory or let the log be trimmed"),
            "WRONGTYPE" => (
                Kind::WrongType,
                "the key of the log is something else: choose another cluster name, or delete that key",
            ),
            "NOREPLICAS" => {
                (Kind::Refused, "min-replicas-to-write asks for more replicas than it has: start them")
            }
            "MASTERDOWN" => (Kind::NotPrimary, "it is a replica without its primary: name the primary"),
            "BUSY" => (Kind::Refused, "a script runs there: this is tried again"),
            "ERR" if text.contains("executing the script") || text.contains("ACL failure") => {
                return Trouble::new(Kind::Denied, denied(command, text));
            }
            "ERR" if text.contains("unknown command") => {
                (Kind::Refused, "it needs Redis 6.2, Valkey 7.2, or newer")
            }
            "ERR" if text.contains("max number of clients") => {
                (Kind::Unreachable, "it has as many clients as it takes: raise maxclients")
            }
            _ => (Kind::Refused, "this is tried again"),
        };
        Trouble::new(kind, format!("{command} was answered with {text:?}; {what}"))
    }
}

fn denied(command: &str, text: &str) -> String {
    // The error is about the command or the key.
    let rule = if text.contains(" key") {
        "the stream's key (rule ~KEY or ~il:*)".to_owned()
    } else {
        let rules: Vec<String> =
            command.split('/').map(|one| format!("+{}", one.to_lowercase())).collect();
        format!("the command (rule {})", rules.join(" "))
    };
    format!("the user may not run {command}: {text:?}; allow it {rule} with ACL SETUSER")
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Maximum bytes shown of an engine's error.
const MOST: usize = 300;
