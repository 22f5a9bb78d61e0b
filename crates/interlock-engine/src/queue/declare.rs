//! `il1_configure`: what a queue was declared as.

use interlock_core::queue::types::limits::{Declared as Entries, Limits, Value, Weights};
use interlock_core::queue::types::{Behind, Retry, Then};

use crate::values::args::{refuse, Args, Read, Reader, What};
use crate::values::reply;
use crate::wire::codes::Code;
use crate::wire::limits::MAX_LIMITS;
pub use crate::wire::options::Declared;
use crate::wire::options::QueueOption;

/// The durability of a queue: whether what was answered survives the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Changes are not stored.
    #[default]
    None,
    /// Stored once a second.
    EverySecond,
    /// An answer means that it is stored.
    Always,
}

impl Declared {
    pub(crate) fn retry(&self) -> Retry {
        Retry {
            attempts: self.attempts,
            first: self.first,
            factor: self.factor as f64 / 1000.0,
            longest: self.longest,
            jitter: self.jitter,
            then: self.then,
        }
    }

    pub fn tell(&self, out: &mut Vec<u8>) {
        reply::array(out, 2 * QueueOption::ALL.len());
        for option in QueueOption::ALL {
            reply::text(out, option.name().as_bytes());
            reply::text(out, &self.told(option));
        }
    }
}

/// The value of an option that is one of a few words.
pub trait OneOf: Sized {
    fn name(self) -> &'static str;
    fn read<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Self>;
}

impl OneOf for Then {
    fn name(self) -> &'static str {
        match self {
            Then::Dead => "dead",
            Then::Hold => "hold",
        }
    }

    fn read<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Self> {
        match from.take(what)? {
            b"dead" => Ok(Then::Dead),
            b"hold" => Ok(Then::Hold),
            _ => from.bad(what, "is not dead or hold"),
        }
    }
}

impl OneOf for Behind {
    fn name(self) -> &'static str {
        self.word()
    }

    fn read<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Self> {
        let word = from.take(what)?;
        match Behind::ALL.into_iter().find(|one| one.word().as_bytes() == word) {
            Some(behind) => Ok(behind),
            None => from.bad(what, "is not wait, bury, cancel or park"),
        }
    }
}

impl OneOf for Durability {
    fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::EverySecond => "everysec",
            Durability::Always => "always",
        }
    }

    fn read<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Self> {
        match from.take(what)? {
            b"always" => Ok(Durability::Always),
            b"everysec" => Ok(Durability::EverySecond),
            b"none" => Ok(Durability::None),
            b"server" => {
                let text = "DURABILITY is 'server'; here it is always, everysec or none";
                refuse(Code::NotSupported, from.called, text)
            }
            _ => from.bad(what, "is not always, everysec, none or server"),
        }
    }
}

/// Reads limits and rates.
pub fn read_limits<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Limits> {
    read_entries(from, what)
}

/// Reads weights of groups.
pub fn read_weights<A: Args + ?Sized>(from: &mut Reader<'_, A>, what: impl What) -> Read<Weights> {
    read_entries(from, what)
}

fn read_entries<V: Value, A: Args + ?Sized>(
    from: &mut Reader<'_, A>,
    what: impl What,
) -> Read<Entries<V>> {
    let text = from.text(MAX_LIMITS, what)?;
    Entries::parse(text).or_else(|why| from.bad(what, why))
}

/// The declaration of a call.
pub struct Declaration {
    /// True if it changes a declared queue, instead of being compared with the declaration.
    pub changes: bool,
    pub declared: Declared,
    /// The options that the call names, a bit each.
    named: u32,
}

impl Declaration {
    /// Returns the first named option that was declared otherwise, with its new and its old value.
    pub fn differs(&self, before: &Declared) -> Option<(QueueOption, String, String)> {
        let named = QueueOption::ALL.into_iter().filter(|one| self.named & 1 << *one as u32 != 0);
        let mut each = named.map(|one| (one, self.declared.told(one), before.told(one)));
        let (option, new, old) = each.find(|(_, new, old)| new != old)?;
        let text = |value: Vec<u8>| String::from_utf8_lossy(&value).into_owned();
        Some((option, text(new), text(old)))
    }
}

/// Reads the declaration of a call; `None`: it only asks. `before` is what holds so far. `journal`: there
/// is one, so that queues can be durable.
pub fn read<A: Args + ?Sized>(
    from: &mut Reader<'_, A>,
    before: &Declared,
    default: Durability,
    journal: bool,
) -> Read<Option<Declaration>> {
    if !from.more() {
        return Ok(None);
    }
    let first = from.args.get(0);
    let keeps = first == b"CHANGE";
    let changes = keeps || first == b"REPLACE";
    from.at += usize::from(changes);
    let mut declared = if keeps { before.clone() } else { Declared::default_of(default) };
    let mut named = 0u32;
    let mut i = 0;
    while from.more() {
        i += 1;
        let Some(option) = QueueOption::of_name(from.take(|| format!("options[{i}]"))?) else {
            let text = format_args!("is not CHANGE, REPLACE, {}", QueueOption::TOLD);
            return from.bad(|| format!("options[{i}]"), text);
        };
        let name = option.name();
        if named & 1 << option as u32 != 0 {
            return from.bad(|| format!("options[{i}]"), format_args!("is {name}, named twice"));
        }
        named |= 1 << option as u32;
        declared.read(option, from, || name.to_string())?;
        let stores = declared.durability != Durability::None;
        if option == QueueOption::Durability && stores && !journal {
            let durability = declared.durability.name();
            let text = format_args!("DURABILITY is '{durability}'; this server has no journal");
            return refuse(Code::NotSupported, from.called, text);
        }
    }
    Ok(Some(Declaration { changes, declared, named }))
}
