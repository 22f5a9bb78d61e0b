//! Who may do what.
//!
//! Rights are looked at with every command, so a user has them ready: which commands, by their
//! declaration's place in memory, and which topics. Rules and passwords are the configuration's and
//! the controller's; here is only remembered, by a keyed hash, which passwords were found right, so that
//! clients who come again need no second look.

use std::sync::Arc;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use interlock_engine::queue_name;
use parking_lot::Mutex;
use ring::hmac;

use crate::command::declared::{Access, Command};
use crate::command::named;
use crate::glob;
use crate::resp::parse::Arguments;

#[derive(Debug, Default)]
pub struct User {
    pub name: String,
    /// Whoever connects is this user, without a password.
    pub open: bool,
    pub commands: Commands,
    pub publish: Patterns,
    pub subscribe: Patterns,
    pub queues: Patterns,
}

#[derive(Debug, Default)]
pub enum Commands {
    #[default]
    All,
    /// The `index` of each, in order.
    These(Box<[usize]>),
}

/// Patterns of which a topic, or a queue's name, must match one.
#[derive(Debug, Default)]
pub enum Patterns {
    #[default]
    All,
    These(Box<[Box<[u8]>]>),
}

/// All of them; cloning shares them.
#[derive(Clone, Debug)]
pub struct Users {
    by_name: Arc<HashMap<Vec<u8>, Arc<User>, RandomState>>,
    remembered: Arc<Remembered>,
}

#[derive(Debug)]
struct Remembered {
    key: hmac::Key,
    passwords: Mutex<HashMap<Vec<u8>, Vec<hmac::Tag>, RandomState>>,
}

/// The user that a connection is before it says who it is.
pub const DEFAULT: &str = "default";

impl Default for Users {
    /// Everybody may do everything.
    fn default() -> Self {
        Users::new([User { name: DEFAULT.into(), open: true, ..User::default() }])
    }
}

impl Users {
    pub fn new(users: impl IntoIterator<Item = User>) -> Self {
        let by_name = users.into_iter().map(|u| (u.name.clone().into_bytes(), Arc::new(u)));
        let random = ring::rand::SystemRandom::new();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random);
        let key = key.expect("the system has random numbers");
        let remembered = Arc::new(Remembered { key, passwords: Mutex::default() });
        Users { by_name: Arc::new(by_name.collect()), remembered }
    }

    pub fn named(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// Who a new connection is; `None`: it must say so first.
    pub fn anonymous(&self) -> Option<&Arc<User>> {
        self.named(DEFAULT.as_bytes()).filter(|user| user.open)
    }

    /// Whether these are the same users, not others that may be called alike.
    pub fn are(&self, other: &Users) -> bool {
        Arc::ptr_eq(&self.remembered, &other.remembered)
    }

    /// Whether there is anybody to log in as.
    pub fn have_passwords(&self) -> bool {
        self.by_name.values().any(|user| !user.open)
    }

    /// Whether this password was found right before.
    pub fn remembers(&self, name: &[u8], password: &[u8]) -> bool {
        let passwords = self.remembered.passwords.lock();
        let tags = passwords.get(name).map_or(&[][..], Vec::as_slice);
        // In constant time each.
        tags.iter().any(|tag| hmac::verify(&self.remembered.key, password, tag.as_ref()).is_ok())
    }

    pub fn remember(&self, name: &[u8], password: &[u8]) {
        if self.remembers(name, password) {
            return;
        }
        let tag = hmac::sign(&self.remembered.key, password);
        let mut passwords = self.remembered.passwords.lock();
        passwords.entry_ref(name).or_default().push(tag);
    }
}

impl User {
    /// Whether this command is allowed, whatever its arguments.
    pub fn may_call(&self, name: &str) -> bool {
        named(name.as_bytes()).is_some_and(|command| self.commands.hold(command))
    }

    /// Why this call is not allowed.
    pub fn refusal(&self, command: &Command, arguments: Arguments<'_>) -> Option<Vec<u8>> {
        if !self.commands.hold(command) {
            let text = "NOPERM this user has no permissions to run the";
            return Some(format!("{text} '{}' command", command.name).into_bytes());
        }
        let allowed = match command.access {
            Access::None => true,
            Access::Publish => self.publish.hold(arguments.get(1).unwrap_or_default()),
            Access::Topics => arguments.from(1).all(|topic| self.subscribe.hold(topic)),
            Access::Patterns => {
                arguments.from(1).all(|pattern| self.subscribe.hold_all_of(pattern))
            }
            // A key that names no queue is the function's to refuse.
            Access::Queue => {
                let name = arguments.get(3).and_then(queue_name);
                name.is_none_or(|name| self.queues.hold(name))
            }
        };
        let what = if command.access == Access::Queue { "keys" } else { "channels" };
        let text = "NOPERM this user has no permissions to access one of the";
        (!allowed).then(|| format!("{text} {what} used as arguments").into_bytes())
    }
}

impl Commands {
    /// By their names, as COMMAND INFO takes them; `Err` is one that there is not.
    pub fn these<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let index = |name: &str| {
            let command = named(name.as_bytes()).ok_or_else(|| name.to_owned())?;
            Ok(command.index())
        };
        let indices: Result<Vec<usize>, String> = names.into_iter().map(index).collect();
        let mut indices = indices?;
        indices.sort_unstable();
        Ok(Commands::These(indices.into()))
    }

    fn hold(&self, command: &Command) -> bool {
        match self {
            Commands::All => true,
            Commands::These(indices) => indices.binary_search(&command.index()).is_ok(),
        }
    }
}

impl Patterns {
    /// `*` among them stands for all.
    pub fn these(patterns: impl IntoIterator<Item = Vec<u8>>) -> Self {
        let patterns: Vec<Box<[u8]>> = patterns.into_iter().map(Into::into).collect();
        if patterns.iter().any(|pattern| **pattern == *b"*") {
            return Patterns::All;
        }
        Patterns::These(patterns.into())
    }

    pub fn hold(&self, topic: &[u8]) -> bool {
        match self {
            Patterns::All => true,
            Patterns::These(patterns) => patterns.iter().any(|own| glob::matches(own, topic)),
        }
    }

    /// Whether all that `pattern` matches is surely allowed: it is one of the own patterns, or begins
    /// with all that one of them asks for.
    pub fn hold_all_of(&self, pattern: &[u8]) -> bool {
        let Patterns::These(patterns) = self else { return true };
        let literal = &pattern[..glob::literal_prefix(pattern)];
        patterns.iter().any(|own| {
            let prefix = &own[..glob::literal_prefix(own)];
            **own == *pattern || (&own[prefix.len()..] == b"*" && literal.starts_with(prefix))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(patterns: &[&str]) -> Patterns {
        Patterns::these(patterns.iter().map(|pattern| pattern.as_bytes().to_vec()))
    }

    #[test]
    fn a_pattern_is_allowed_only_if_all_it_matches_is() {
        let own = topics(&["orders.*", "news", "a?c", "e\\*"]);
        for allowed in ["orders.*", "orders.eu.*", "orders.?", "orders.[ab]", "orders.x", "a?c"] {
            assert!(own.hold_all_of(allowed.as_bytes()), "{allowed}");
        }
        for refused in ["*", "order*", "news*", "a*c", "abc*", "", "e*", "ordersx.*", "o[r]ders.*"]
        {
            assert!(!own.hold_all_of(refused.as_bytes()), "{refused}");
        }
        assert!(topics(&["a", "*"]).hold_all_of(b"*"));
    }

    #[test]
    fn an_allowed_pattern_matches_no_topic_that_is_not_allowed() {
        let mut random = fastrand::Rng::with_seed(11);
        let mut string = |from: &[u8], most: usize| -> Vec<u8> {
            (0..random.usize(0..=most)).map(|_| from[random.usize(0..from.len())]).collect()
        };
        let mut held = 0;
        for _ in 0..200_000 {
            let own = Patterns::these([string(b"aab*?[]\\", 4)]);
            let (pattern, topic) = (string(b"aab*?[]\\", 5), string(b"ab*", 5));
            if own.hold_all_of(&pattern) && glob::matches(&pattern, &topic) {
                held += 1;
                assert!(own.hold(&topic), "{own:?} {pattern:?} {topic:?}");
            }
        }
        assert!(held > 1000, "{held} cases are too few to prove anything");
    }

    #[test]
    fn a_password_is_remembered_for_its_user_alone() {
        let users = Users::default();
        users.remember(b"a", b"secret");
        assert!(users.clone().remembers(b"a", b"secret"));
        assert!(!users.remembers(b"a", b"other") && !users.remembers(b"b", b"secret"));
        assert!(!Users::default().remembers(b"a", b"secret"), "other users, other memory");
    }
}
