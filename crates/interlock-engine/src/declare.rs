//! `il1_configure`: what a queue was declared as.

use interlock_core::queue::types::{Options, Retry, Then};

use crate::args::{refuse, Args, Read, Reader, What};
use crate::limits::{MAX_COUNT, MAX_SPAN};
use crate::reply;

/// The durability of a queue: whether what was answered survives the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Nothing is stored.
    #[default]
    None,
    /// Stored once a second.
    EverySecond,
    /// An answer means that it is stored.
    Always,
}

impl Durability {
    pub fn name(self) -> &'static str {
        match self {
            Durability::None => "none",
            Durability::EverySecond => "everysec",
            Durability::Always => "always",
        }
    }
}

/// A queue's options, in the units of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    pub max_size: u64,
    pub max_bytes: u64,
    pub max_dead: u64,
    pub window: u64,
    /// `None`: for ever.
    pub attempts: Option<u32>,
    pub first: u64,
    /// In thousandths.
    pub factor: u64,
    pub longest: u64,
    pub jitter: bool,
    pub then: Then,
    /// Bytes of kept results.
    pub results: u64,
    pub durability: Durability,
}

impl Declared {
    pub fn default_of(durability: Durability) -> Self {
        Declared {
            max_size: 0,
            max_bytes: 0,
            max_dead: 10_000,
            window: 300_000_000,
            attempts: Some(5),
            first: 1_000_000,
            factor: 2000,
            longest: 60_000_000,
            jitter: true,
            then: Then::Dead,
            results: 64 << 20,
            durability,
        }
    }

    /// As the scheduler takes them.
    pub fn options(&self) -> Options {
        Options {
            max_messages: self.max_size as usize,
            max_bytes: self.max_bytes,
            lease: None,
            retry: Retry {
                attempts: self.attempts,
                first: self.first,
                factor: self.factor as f64 / 1000.0,
                longest: self.longest,
                jitter: self.jitter,
                then: self.then,
            },
            dedup_window: self.window,
            max_dead: self.max_dead as usize,
        }
    }

    pub fn tell(&self, out: &mut Vec<u8>) {
        reply::array(out, 2 * NAMES.len());
        for (name, value) in NAMES.iter().zip(self.values()) {
            reply::text(out, name.as_bytes());
            reply::text(out, value.as_bytes());
        }
    }

    /// In the order of `NAMES`.
    fn values(&self) -> [String; 12] {
        [
            self.max_size.to_string(),
            self.max_bytes.to_string(),
            self.max_dead.to_string(),
            self.window.to_string(),
            self.attempts.unwrap_or(0).to_string(),
            self.first.to_string(),
            self.factor.to_string(),
            self.longest.to_string(),
            u8::from(self.jitter).to_string(),
            then_name(self.then).to_owned(),
            self.results.to_string(),
            self.durability.name().to_owned(),
        ]
    }

    /// The first option that another declaration has otherwise: its name, here and there.
    pub fn differs(&self, other: &Declared) -> Option<(&'static str, String, String)> {
        let pairs = self.values().into_iter().zip(other.values());
        let mut named = NAMES.iter().zip(pairs);
        named.find(|(_, (a, b))| a != b).map(|(name, (a, b))| (*name, a, b))
    }
}

pub fn then_name(then: Then) -> &'static str {
    match then {
        Then::Dead => "dead",
        Then::Hold => "hold",
    }
}

/// One part of a retry policy, as `il1_put` and `il1_configure` take it.
pub enum Policy {
    Attempts(Option<u32>),
    First(u64),
    Factor(u64),
    Longest(u64),
    Jitter(bool),
    Then(Then),
}

/// Reads the value of `name`, which is one of the policy's.
pub fn read_policy<A: Args + ?Sized>(
    from: &mut Reader<'_, A>,
    name: &str,
    what: impl What,
) -> Read<Policy> {
    Ok(match name {
        "ATTEMPTS" => {
            let most = from.natural(0, MAX_COUNT, what)? as u32;
            Policy::Attempts(Some(most).filter(|&most| most > 0))
        }
        "FIRST" => Policy::First(from.natural(0, MAX_SPAN, what)?),
        "FACTOR" => Policy::Factor(from.natural(1000, MAX_COUNT, what)?),
        "LONGEST" => Policy::Longest(from.natural(0, MAX_SPAN, what)?),
        "JITTER" => Policy::Jitter(from.natural(0, 1, what)? == 1),
        _ => match from.take(what)? {
            b"dead" => Policy::Then(Then::Dead),
            b"hold" => Policy::Then(Then::Hold),
            _ => return from.bad(what, "is not dead or hold"),
        },
    })
}

const NAMES: [&str; 12] = [
    "MAXSIZE",
    "MAXBYTES",
    "MAXDEAD",
    "WINDOW",
    "ATTEMPTS",
    "FIRST",
    "FACTOR",
    "LONGEST",
    "JITTER",
    "THEN",
    "RESULTS",
    "DURABILITY",
];

/// The declaration that a call makes; `None`: it only asks.
pub struct Declaration {
    pub replace: bool,
    pub declared: Declared,
}

pub fn read<A: Args + ?Sized>(
    from: &mut Reader<'_, A>,
    default: Durability,
    journal: bool,
) -> Read<Option<Declaration>> {
    if !from.more() {
        return Ok(None);
    }
    let replace = from.args.get(0) == b"REPLACE";
    from.at += usize::from(replace);
    let mut declared = Declared::default_of(default);
    let mut seen = 0u16;
    let mut i = 0;
    while from.more() {
        i += 1;
        let name = from.take(|| format!("options[{i}]"))?;
        let Some(at) = NAMES.iter().position(|known| known.as_bytes() == name) else {
            let text =
                "is not REPLACE, MAXSIZE, MAXBYTES, MAXDEAD, WINDOW, ATTEMPTS, FIRST, FACTOR, \
                        LONGEST, JITTER, THEN, RESULTS or DURABILITY";
            return from.bad(|| format!("options[{i}]"), text);
        };
        let name = NAMES[at];
        let what = || name.to_string();
        if seen & 1 << at != 0 {
            return from.bad(|| format!("options[{i}]"), format_args!("is {name}, named twice"));
        }
        seen |= 1 << at;
        match name {
            "MAXSIZE" => declared.max_size = from.natural(0, MAX_COUNT, what)?,
            "MAXBYTES" => declared.max_bytes = from.natural(0, MAX_SPAN, what)?,
            "MAXDEAD" => declared.max_dead = from.natural(0, MAX_COUNT, what)?,
            "WINDOW" => declared.window = from.natural(0, MAX_SPAN, what)?,
            "RESULTS" => declared.results = from.natural(0, MAX_SPAN, what)?,
            "DURABILITY" => declared.durability = durability(from, journal)?,
            _ => match read_policy(from, name, what)? {
                Policy::Attempts(value) => declared.attempts = value,
                Policy::First(value) => declared.first = value,
                Policy::Factor(value) => declared.factor = value,
                Policy::Longest(value) => declared.longest = value,
                Policy::Jitter(value) => declared.jitter = value,
                Policy::Then(value) => declared.then = value,
            },
        }
    }
    Ok(Some(Declaration { replace, declared }))
}

fn durability<A: Args + ?Sized>(from: &mut Reader<'_, A>, journal: bool) -> Read<Durability> {
    let what = || "DURABILITY".into();
    let durability = match from.take(what)? {
        b"always" => Durability::Always,
        b"everysec" => Durability::EverySecond,
        b"none" => Durability::None,
        b"server" => {
            let text = "DURABILITY is 'server'; here it is always, everysec or none";
            return refuse("NOTSUPPORTED", from.called, text);
        }
        _ => return from.bad(what, "is not always, everysec, none or server"),
    };
    if durability != Durability::None && !journal {
        let text =
            format_args!("DURABILITY is '{}'; this server has no journal", durability.name());
        return refuse("NOTSUPPORTED", from.called, text);
    }
    Ok(durability)
}
