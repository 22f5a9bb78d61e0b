//! An answer as a line of text, for comparing two replays.

use std::fmt::{self, Display, Formatter};

use crate::queue::calls::coalesce::Differs;
use crate::queue::schedules::trace::{Answer, Granted, PutAnswer};
use crate::queue::types::Node;

impl Display for Answer {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Put(placed) => list(f, "put", placed, |f, put: &PutAnswer| {
                let how = match put {
                    PutAnswer { known: true, .. } => " known",
                    PutAnswer { replaced: true, .. } => " replaced",
                    _ => "",
                };
                write!(f, "{}{how}", put.id)
            }),
            Answer::Full => write!(f, "full"),
            Answer::TooLarge => write!(f, "too large"),
            Answer::Differs(differs) => {
                let Differs { message, what, .. } = differs;
                write!(f, "put {message} has another {}", what.words())
            }
            Answer::Stuck => write!(f, "half is parked"),
            Answer::Leased(granted) => list(f, "leased", granted, |f, lease: &Granted| {
                write!(f, "{} token {} attempt {}", lease.id, lease.token, lease.attempt)
            }),
            Answer::Done => write!(f, "done"),
            Answer::LeaseLost => write!(f, "lease lost"),
            Answer::Bool(answer) => write!(f, "{answer}"),
            Answer::Id(None) => write!(f, "no such dead letter"),
            Answer::Id(Some(id)) => write!(f, "requeued {id}"),
            Answer::Explained(None) => write!(f, "settled, or never put"),
            Answer::Explained(Some(explained)) => {
                list(f, "explained", &explained.nodes, |f, node: &Node| {
                    write!(f, "{} {:?}", node.id, node.state)?;
                    let holders: Vec<u64> =
                        node.blocked.iter().flat_map(|b| b.holders.clone()).collect();
                    if holders.is_empty() {
                        Ok(())
                    } else {
                        write!(f, " behind {holders:?}")
                    }
                })
            }
            Answer::Stats(stats) => write!(
                f,
                "stats {} unsettled, {} ready, {} leased",
                stats.unsettled, stats.ready, stats.leased
            ),
            Answer::Hot(hot) => list(f, "hot", hot, |f, hot| {
                write!(f, "{} {}", String::from_utf8_lossy(&hot.key), hot.depth)
            }),
            Answer::Dead(dead) => list(f, "dead", dead, |f, (id, attempts, error)| {
                write!(f, "{id} attempts {attempts} {error}")
            }),
            Answer::Ids(ids) => list(f, "cancelled", ids, |f, id| write!(f, "{id}")),
        }
    }
}

fn list<T>(
    f: &mut Formatter<'_>,
    what: &str,
    items: &[T],
    one: impl Fn(&mut Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    write!(f, "{what}")?;
    if items.is_empty() {
        write!(f, " nothing")?;
    }
    items.iter().enumerate().try_for_each(|(i, item)| {
        write!(f, "{} ", if i == 0 { "" } else { "," })?;
        one(f, item)
    })
}

#[cfg(test)]
mod tests {
    use crate::queue::schedules::trace_text::answer::*;

    #[test]
    fn an_answer_is_a_line() {
        let granted = [1, 2].map(|id| Granted { id, token: 10 + id, attempt: 1 });
        let leased = Answer::Leased(granted.to_vec());
        assert_eq!(leased.to_string(), "leased 1 token 11 attempt 1, 2 token 12 attempt 1");
        assert_eq!(Answer::Leased(Vec::new()).to_string(), "leased nothing");
        assert_eq!(
            Answer::Put(vec![PutAnswer { id: 7, known: true, replaced: false }]).to_string(),
            "put 7 known"
        );
    }
}
