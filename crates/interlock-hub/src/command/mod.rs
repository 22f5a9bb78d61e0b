//! Commands: found by name, checked against their declaration, applied to state, never to a socket.

mod connection;
pub mod info;
pub mod pending;
mod queues;
mod server;
pub mod state;
mod streams;
mod tables;
pub mod topics;
pub mod transaction;

use interlock_engine::Function;

pub use self::tables::node_calls::follows;

use self::connection::login;

use crate::access::users::topics_of;
use crate::catalog::actions::actions;
use crate::catalog::{named, Access, Action, Command, Unknown};
use crate::command::pending::Pending;
use crate::command::state::State;
use crate::glob;
use crate::resp::parse::Arguments;
use crate::resp::write::Writer;
use crate::shared::events::{Answer, Asker, Question};
use crate::shared::Core;
use crate::watch::counters::add;

/// One call of a command.
pub struct Call<'a, 'b> {
    pub state: &'a mut State,
    pub core: &'a mut Core<'b>,
    pub arguments: Arguments<'a>,
    pub reply: Writer<'a>,
    pub command: &'static Command,
}

/// A browser was made to talk to the hub: as in Redis, its first line must not become a command.
pub fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

impl Command {
    /// Returns the refusal of a call that names a topic or a pattern too long to be one.
    fn too_long(&self, arguments: Arguments<'_>) -> Option<String> {
        match self.access {
            Access::None
            | Access::Queue
            | Access::Row
            | Access::Rows
            | Access::TableRow
            | Access::TableName => None,
            Access::Publish | Access::Stream => arguments.get(1).and_then(glob::topic_refusal),
            Access::Relay => arguments.get(4).and_then(glob::topic_refusal),
            Access::Topics => arguments.from(1).find_map(glob::topic_refusal),
            Access::Patterns => arguments.from(1).find_map(glob::refusal),
            Access::Streams => topics_of(arguments).find_map(glob::topic_refusal),
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
                    let text = server::acl::refused(reason, self, object, &user.name);
                    if let (Access::Queue, Some(function)) =
                        (self.access, arguments.get(1).and_then(Function::named))
                    {
                        queues::audit_refusal(function, arguments, state, core, &text);
                    }
                    return Some(text.into_bytes());
                }
            }
            None => {}
        }
        // In RESP2 a subscriber cannot distinguish pushed messages from replies.
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
            Unknown::Command if is_of_transactions(&arguments[0]) => {
                let end: &[u8] = b"': a hub has no transactions, each command runs on its own";
                [b"ERR unknown command '", shown(0, 128), end].concat()
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

/// Returns whether this is a command of transactions. Clients send those around the commands of a pipeline
/// without being told to, and those are done all the same.
fn is_of_transactions(name: &[u8]) -> bool {
    let known: [&[u8]; 5] = [b"multi", b"exec", b"discard", b"watch", b"unwatch"];
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Answers a call that waited: by what it waited for.
pub fn answered(
    pending: Pending,
    answer: Answer,
    state: &mut State,
    core: &mut Core<'_>,
    mut reply: Writer<'_>,
) {
    match pending {
        Pending::Login(login) => login::answered(login, answer, state, core, reply),
        Pending::Order { closes } => server::control::answered(answer, closes, state, core, reply),
        Pending::Queue | Pending::Reading { .. } | Pending::Kept { .. } => {
            queues::answered(answer, state, core, reply);
        }
        Pending::Listing(listing) => topics::channels::go_on(listing, state, core, &mut reply),
        Pending::Gathering(gathering) => topics::subscribers::gather(gathering, state, core),
        Pending::Survey(survey) => topics::subscribers::answered(survey, state, core, &mut reply),
        Pending::Relay => topics::relay::answered(answer, state, core, reply),
        Pending::Pause | Pending::Room | Pending::Writes { .. } => {}
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
    pub fn ask(&mut self, question: Question, pending: Pending) {
        ask(self.state, self.core, question, pending);
    }

    pub fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.get(index).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The error of a subcommand whose declaration allows more arguments than it takes.
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

fn ask(state: &mut State, core: &Core<'_>, question: Question, pending: Pending) {
    let card = &state.card;
    let asker = Asker { worker: card.worker, token: card.token, id: card.id };
    core.shared.events.ask(asker, question);
    state.pending = Some(Box::new(pending));
}

/// HELP of a container: what its subcommands are for, as Redis lays it out.
fn help(call: &mut Call<'_, '_>) {
    let (container, _) = call.command.name.split_once('|').unwrap_or_default();
    let subcommands = named(container.as_bytes()).map_or(&[][..], |command| command.subcommands);
    let usage = "<subcommand> [<arg> [value] [opt] ...]. Subcommands are:";
    let mut lines = vec![format!("{} {usage}", container.to_ascii_uppercase())];
    for sub in subcommands {
        let (_, name) = sub.name.split_once('|').unwrap_or_default();
        lines.push(format!(
            "{}{}",
            name.to_ascii_uppercase(),
            server::documented::usage(sub.arguments)
        ));
        lines.push(format!("    {}.", sub.summary));
    }
    call.reply.array(lines.len());
    lines.iter().for_each(|line| call.reply.simple(line));
}

/// A container's handler; its subcommands do the work.
fn nothing(_: &mut Call<'_, '_>) {}

macro_rules! handlers {
    ($($name:ident => $path:path,)*) => {
        /// Returns the function that performs an action.
        pub fn handler(action: Action) -> fn(&mut Call<'_, '_>) {
            match action {
                $(Action::$name => $path,)*
            }
        }
    };
}
actions!(handlers);
