//! The commands that write, by their names.

use interlock_rows::{Refusal, Verb};

/// A command, and the arguments that it has.
#[derive(Clone, Copy)]
pub enum Do {
    /// One row, which this argument names.
    One(Verb, usize),
    /// DEL and UNLINK.
    DeleteAll,
    /// TABLE MSET.
    SetAll,
    /// TABLE BARRIER, which changes nothing.
    Barrier,
}

use Do::{Barrier, DeleteAll, One, SetAll};

/// Name, the least and the most arguments with it.
const COMMANDS: [(&str, usize, usize, Do); 20] = [
    ("hset", 4, usize::MAX, One(Verb::Hset, 1)),
    ("hmset", 4, usize::MAX, One(Verb::Hmset, 1)),
    ("hsetnx", 4, 4, One(Verb::Hsetnx, 1)),
    ("hincrby", 4, 4, One(Verb::Hincrby, 1)),
    ("hincrbyfloat", 4, 4, One(Verb::Hincrbyfloat, 1)),
    ("hdel", 3, usize::MAX, One(Verb::Hdel, 1)),
    ("del", 2, usize::MAX, DeleteAll),
    ("unlink", 2, usize::MAX, DeleteAll),
    ("expire", 3, usize::MAX, One(Verb::Expire, 1)),
    ("pexpire", 3, usize::MAX, One(Verb::Pexpire, 1)),
    ("expireat", 3, usize::MAX, One(Verb::Expireat, 1)),
    ("pexpireat", 3, usize::MAX, One(Verb::Pexpireat, 1)),
    ("persist", 2, 2, One(Verb::Persist, 1)),
    ("table|set", 5, usize::MAX, One(Verb::TableSet, 2)),
    ("table|mset", 6, usize::MAX, SetAll),
    ("table|patch", 5, usize::MAX, One(Verb::TablePatch, 2)),
    ("table|incr", 5, usize::MAX, One(Verb::TableIncr, 2)),
    ("table|cas", 6, 6, One(Verb::TableCas, 2)),
    ("table|pop", 3, 3, One(Verb::TablePop, 2)),
    ("table|barrier", 2, usize::MAX, Barrier),
];

/// The command that these arguments begin with. Errors: there is none, or it has not so many arguments.
pub fn find<T: AsRef<[u8]>>(arguments: &[T]) -> Result<Do, Refusal> {
    let word = |at: usize| arguments.get(at).map_or(&[][..], AsRef::as_ref);
    let is_it = |name: &str| match name.strip_prefix("table|") {
        Some(rest) => {
            word(0).eq_ignore_ascii_case(b"table") && word(1).eq_ignore_ascii_case(rest.as_bytes())
        }
        None => word(0).eq_ignore_ascii_case(name.as_bytes()),
    };
    let Some((name, least, most, found)) = COMMANDS.iter().find(|(name, ..)| is_it(name)) else {
        let name = &word(0)[..word(0).len().min(128)];
        return Err(Refusal([b"ERR unknown command '", name, b"'"].concat()));
    };
    if !(*least..=*most).contains(&arguments.len()) {
        return Err(Refusal::wrong_count(name));
    }
    Ok(*found)
}
