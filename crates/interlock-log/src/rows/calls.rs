//! Lookup of the commands that write, by name.

use interlock_rows::{Refusal, Verb};

/// A command on the rows of one table.
#[derive(Clone, Copy)]
pub enum Call {
    Of(Verb),
    /// TABLE BARRIER, which changes nothing.
    Barrier,
    /// TABLE TIME, which changes nothing either.
    Time,
}

/// Returns the command that these words begin with. Errors: the command is unknown, or words are
/// missing.
pub fn find<T: AsRef<[u8]>>(words: &[T]) -> Result<Call, Refusal> {
    if let Some(verb) = Verb::of(words)? {
        return Ok(Call::Of(verb));
    }
    let word = |at: usize| words.get(at).map_or(&[][..], AsRef::as_ref);
    let is = |at, name: &[u8]| word(at).eq_ignore_ascii_case(name);
    if is(0, b"table") && is(1, b"barrier") {
        let is_whole = match words.len() {
            5 => is(3, b"acks") && word(4).iter().all(u8::is_ascii_digit) && word(4).len() <= 3,
            count => count == 3,
        };
        return is_whole.then_some(Call::Barrier).ok_or_else(|| Refusal(BARRIER.to_vec()));
    }
    if is(0, b"table") && is(1, b"time") {
        return Ok(Call::Time);
    }
    let name = &word(0)[..word(0).len().min(128)];
    Err(Refusal([b"ERR unknown command '", name, b"'"].concat()))
}

const BARRIER: &[u8] = b"ERR allowed: TABLE BARRIER NAME [ACKS MACHINES], of 0 to 999 machines";
