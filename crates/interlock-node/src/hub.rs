//! The clients of a hub as those of its node: writes that wait in the hub's keeper.

use std::os::fd::RawFd;
use std::sync::mpsc::Sender;
use std::sync::Arc;

use interlock_hub::kept::{Call, Keeper};
use interlock_log::apply::Answer;

use crate::node::{Clients, News, Refused, Write};

pub struct HubClients {
    keeper: Arc<Keeper>,
    news: Sender<News>,
}

impl HubClients {
    /// `news`: where the node's news go.
    pub fn new(keeper: Arc<Keeper>, news: Sender<News>) -> HubClients {
        HubClients { keeper, news }
    }
}

impl Clients for HubClients {
    fn descriptor(&self) -> RawFd {
        self.keeper.descriptor()
    }

    fn take(&mut self, most: usize) -> Vec<Write> {
        let (asked, writes): (Vec<Call>, Vec<Call>) =
            self.keeper.take(most).into_iter().partition(is_of_node);
        if !asked.is_empty() {
            self.keeper.answer(asked.into_iter().map(|call| (call.number, error(NO_VERB))));
        }
        let write = |call: Call| {
            let arguments = call.arguments.arguments().from(0).map(<[u8]>::to_vec).collect();
            Write { ticket: call.number, client: None, arguments }
        };
        writes.into_iter().map(write).collect()
    }

    fn answer(&mut self, answers: Vec<(u64, Answer)>) {
        self.keeper.answer(answers.into_iter().map(|(number, answer)| (number, reply(answer))));
    }

    fn refuse(&mut self, writes: Vec<Write>, why: Refused) {
        let text = match why {
            Refused::Drains => "TRYAGAIN the node drains: ask another; it was not done",
            Refused::CannotNow => "TRYAGAIN the node cannot append to its log: it was not done",
        };
        self.keeper.answer(writes.into_iter().map(|write| (write.ticket, error(text))));
    }

    fn tell(&mut self, news: News) {
        // Whoever does not listen any more has ended.
        let _ = self.news.send(news);
    }
}

/// NODE is for the node itself.
fn is_of_node(call: &Call) -> bool {
    call.arguments.arguments().from(0).next().is_some_and(|name| name.eq_ignore_ascii_case(b"NODE"))
}

fn reply(answer: Answer) -> Vec<u8> {
    match answer {
        Answer::Done { reply: Some(reply), .. } => reply,
        Answer::Done { reply: None, .. } => {
            error("UNANSWERED it was done, and its reply is not kept any more")
        }
        Answer::Late => error("ERR a later write of this client was done: this one was not"),
        Answer::Past => error("TRYAGAIN it came into the log too late: it was not done"),
        Answer::Full => error("TRYAGAIN the log has as many clients as it may: it was not done"),
        Answer::Unknown => {
            error("UNANSWERED the node has not read it in the log: it may have been done")
        }
    }
}

fn error(text: &str) -> Vec<u8> {
    format!("-{text}\r\n").into_bytes()
}

const NO_VERB: &str = "ERR a node on a log has no commands of its own yet";
