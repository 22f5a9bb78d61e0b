//! Commands: found by name, checked against their declaration, applied to state, never to a socket.

mod acl;
pub mod backup;
mod channels;
mod client;
mod connection;
mod control;
pub mod declared;
mod documented;
mod login;
mod queues;
mod server;
mod slow;
mod status;
mod topics;

pub use connection::REDIS_VERSION;
use declared::Access;
pub use declared::{Argument, Command};

use interlock_engine::Function;

use crate::counters::add;
use crate::events::{Answer, Asker, Question};
use crate::glob;
use crate::resp::parse::Arguments;
use crate::resp::write::Writer;
use crate::shared::Core;
use crate::state::State;

/// One call of a command.
pub struct Call<'a, 'b> {
    pub state: &'a mut State,
    pub core: &'a mut Core<'b>,
    pub arguments: Arguments<'a>,
    pub reply: Writer<'a>,
    pub command: &'static Command,
}

/// A call that goes on later: answered elsewhere, at its next turn, or after a pause.
#[derive(Debug)]
pub enum Waiting {
    Login(login::Login),
    /// CONFIG SET and the like; `closes`: the connection's end is the answer.
    Order {
        closes: bool,
    },
    /// A function that waits for something to answer.
    Queue,
    /// Its next step.
    Listing(channels::Listing),
    /// CLIENT PAUSE: the request is done when that ends.
    Pause,
}

impl Waiting {
    pub fn answered(
        self,
        answer: Answer,
        state: &mut State,
        core: &mut Core<'_>,
        reply: Writer<'_>,
    ) {
        match self {
            Waiting::Login(login) => login.answered(answer, state, core, reply),
            Waiting::Order { closes } => control::answered(answer, closes, state, core, reply),
            Waiting::Queue => queues::answered(answer, state, core, reply),
            Waiting::Listing(listing) => {
                let mut reply = reply;
                listing.go_on(state, core, &mut reply);
            }
            Waiting::Pause => {}
        }
    }
}

/// The reason why there is no such command.
#[derive(Clone, Copy, Debug)]
pub enum Unknown {
    Command,
    Subcommand,
    /// Of FCALL, which says it as a server with libraries does.
    Function,
}

pub fn all() -> impl Iterator<Item = &'static Command> {
    declared::FAMILIES.iter().flat_map(|family| family.iter())
}

pub fn find(arguments: Arguments<'_>) -> Result<&'static Command, Unknown> {
    let name = &arguments[0];
    let command = all().find(|command| is_called(name, command.name.as_bytes()));
    let command = command.ok_or(Unknown::Command)?;
    match arguments.get(1) {
        Some(sub) if !command.subcommands.is_empty() => {
            let calls_functions = command.name.starts_with("fcall");
            let unknown = if calls_functions { Unknown::Function } else { Unknown::Subcommand };
            command.subcommand(sub).ok_or(unknown)
        }
        _ => Ok(command),
    }
}

/// Returns whether it is this name, in whatever case. Of names of one length most differ in their
/// last letter, and those of the functions begin alike.
#[inline]
fn is_called(name: &[u8], known: &[u8]) -> bool {
    let last = |name: &[u8]| name.last().map(|byte| byte | 0x20);
    name.len() == known.len() && last(name) == last(known) && name.eq_ignore_ascii_case(known)
}

/// A browser was made to talk to the hub: as in Redis, its first line must not become a command.
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// By its name as COMMAND INFO takes it: `get`, `client|list`.
pub fn named(name: &[u8]) -> Option<&'static Command> {
    let subcommands = |command: &'static Command| [command].into_iter().chain(command.subcommands);
    all().flat_map(subcommands).find(|command| name.eq_ignore_ascii_case(command.name.as_bytes()))
}

/// The command whose `index` it is.
pub fn name_of(index: usize) -> &'static str {
    let known = all().flat_map(|command| [command].into_iter().chain(command.subcommands));
    known.into_iter().find(|command| command.index() == index).map_or("NULL", |found| found.name)
}

impl Command {
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Command> {
        // The container's name comes first, and `|`.
        let first = self.name.len() + 1;
        let own = |sub: &&Command| is_called(name, &sub.name.as_bytes()[first..]);
        self.subcommands.iter().find(own)
    }

    /// A number that stands for it: its place in memory.
    pub fn index(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    pub fn wrong_arity(&self, arguments: Arguments<'_>) -> Option<String> {
        let count = arguments.len() as i32;
        let wrong = (self.arity > 0 && count != self.arity) || count < -self.arity;
        wrong.then(|| format!("ERR wrong number of arguments for '{}' command", self.name))
    }

    /// Returns the refusal of a call that names a topic or a pattern too long to be one.
    fn too_long(&self, arguments: Arguments<'_>) -> Option<String> {
        match self.access {
            Access::None | Access::Queue => None,
            Access::Publish => arguments.get(1).and_then(glob::topic_refusal),
            Access::Topics => arguments.from(1).find_map(glob::topic_refusal),
            Access::Patterns => arguments.from(1).find_map(glob::refusal),
        }
    }

    /// Returns why this call is refused, before anything is done.
    pub fn refusal(
        &self,
        arguments: Arguments<'_>,
        state: &State,
        core: &Core<'_>,
    ) -> Option<Vec<u8>> {
        if let Some(text) = self.wrong_arity(arguments) {
            return Some(text.into_bytes());
        }
        match &state.user {
            None if !self.has_flag("no_auth") => return Some(login::WITHOUT_LOGIN.into()),
            Some(user) => {
                // Before its rights are looked at, which compares it with patterns.
                if let Some(text) = self.too_long(arguments) {
                    return Some(text.into_bytes());
                }
                let refusal = user.refusal(self, arguments).filter(|_| !self.has_flag("no_auth"));
                if let Some((reason, object)) = refusal {
                    add(&core.shared.counters.permission_errors, 1);
                    let (name, card) = (user.name.as_bytes(), &state.card);
                    core.shared.denials.add(reason, object, name, card, core.now);
                    return Some(acl::refused(reason, self).into_bytes());
                }
            }
            None => {}
        }
        // In RESP2 what a subscriber is sent cannot be told from an answer.
        let bound = !state.resp3 && state.is_subscribed();
        if bound && !self.pushes && !matches!(self.name, "ping" | "quit" | "reset") {
            let text = format!(
                "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
                 RESET are allowed in this context",
                self.name
            );
            return Some(text.into_bytes());
        }
        None
    }
}

impl Unknown {
    pub fn text(self, arguments: Arguments<'_>) -> Vec<u8> {
        let shown = |index: usize, most: usize| {
            let bytes = arguments.get(index).unwrap_or_default();
            // Redis prints them as C strings.
            let end = bytes.iter().take(most).position(|&byte| byte == 0);
            &bytes[..end.unwrap_or(bytes.len().min(most))]
        };
        match self {
            Unknown::Function => match Function::named(&arguments[1]) {
                // Only FCALL_RO does not know one that there is.
                Some(_) => {
                    b"ERR Can not execute a script with write flag using *_ro command.".to_vec()
                }
                None => b"ERR Function not found".to_vec(),
            },
            Unknown::Subcommand => {
                let container = arguments[0].to_ascii_uppercase();
                let parts: [&[u8]; 5] =
                    [b"ERR unknown subcommand '", shown(1, 128), b"'. Try ", &container, b" HELP."];
                parts.concat()
            }
            Unknown::Command => {
                let mut beginning = Vec::new();
                for index in 1..arguments.len() {
                    if beginning.len() >= 128 {
                        break;
                    }
                    let left = 128 - beginning.len();
                    beginning.extend_from_slice(b"'");
                    beginning.extend_from_slice(shown(index, left));
                    beginning.extend_from_slice(b"' ");
                }
                let head: &[u8] = b"ERR unknown command '";
                let middle = b"', with args beginning with: ";
                [head, shown(0, 128), middle, &beginning].concat()
            }
        }
    }
}

impl Call<'_, '_> {
    pub fn error(&mut self, text: &str) {
        self.error_bytes(text.as_bytes());
    }

    pub fn error_bytes(&mut self, text: &[u8]) {
        self.core.count_error(text);
        self.reply.error(text);
    }

    /// The reply comes when the controller has answered.
    pub fn ask(&mut self, question: Question, waiting: Waiting) {
        ask(self.state, self.core, question, waiting);
    }

    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.get(index).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Of a subcommand whose declaration allows more arguments than it takes.
    pub fn wrong_count(&mut self, container: &str) {
        let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
        let tail = format!("'. Try {container} HELP.");
        let text = [head, &self.arguments[1], tail.as_bytes()].concat();
        self.error_bytes(&text);
    }

    pub fn syntax_error(&mut self) {
        self.error("ERR syntax error");
    }
}

fn ask(state: &mut State, core: &Core<'_>, question: Question, waiting: Waiting) {
    let card = &state.card;
    let asker = Asker { worker: card.worker, token: card.token, id: card.id };
    core.shared.events.ask(asker, question);
    state.waiting = Some(Box::new(waiting));
}

/// HELP of a container: what its subcommands are for, as Redis lays it out.
fn help(call: &mut Call<'_, '_>) {
    let (container, _) = call.command.name.split_once('|').unwrap_or_default();
    let subcommands = named(container.as_bytes()).map_or(&[][..], |command| command.subcommands);
    let usage = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    let mut lines = vec![format!("{} {usage}", container.to_ascii_uppercase())];
    for sub in subcommands {
        let (_, name) = sub.name.split_once('|').unwrap_or_default();
        lines.push(format!("{}{}", name.to_ascii_uppercase(), documented::usage(sub.arguments)));
        lines.push(format!("    {}.", sub.summary));
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.simple(line));
}

/// Of a container: its subcommands do the work.
fn nothing(_: &mut Call<'_, '_>) {}
