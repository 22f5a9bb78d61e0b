//! A write is confirmed once readers of the node's machine see it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interlock_log::apply::Answer;
use interlock_log::checkpoint::Place;
use interlock_log::entry::Mark;
use interlock_node::node::{News, Pace, Refused};
use interlock_node::projection::Projection;
use interlock_stores::disk::folder::Folder;

use crate::server::Server;
use crate::{acks, sums, Running, Sums};

/// Readers who see an older state once a sum has begun, as long as `hides` is true.
struct Behind {
    name: &'static str,
    hides: Arc<AtomicBool>,
    has_begun: bool,
    /// Number of turns of the node since the sum has begun.
    turns: Arc<AtomicU64>,
}

impl Projection<Sums> for Behind {
    fn shown(&self) -> Option<Mark> {
        None
    }

    fn show(&mut self, sums: &mut Sums, _: Place, _: bool) -> Result<(), String> {
        self.has_begun = sums.sum(self.name.as_bytes()) > 0;
        self.turns.fetch_add(u64::from(self.has_begun), SeqCst);
        Ok(())
    }

    fn is_behind(&self) -> bool {
        self.has_begun && self.hides.load(SeqCst)
    }
}

/// Starts a node whose readers see no write to a sum while the returned flag is true. Also returns
/// the number of its turns since that sum has begun.
fn behind(
    server: &Server,
    name: &'static str,
    timeout: u64,
) -> (Running, Arc<AtomicBool>, Arc<AtomicU64>) {
    let (hides, turns) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let readers =
        Behind { name, hides: Arc::clone(&hides), has_begun: false, turns: Arc::clone(&turns) };
    let folder = Folder::new(server.folder.join(name));
    let node = Running::shown_in(server, folder, name, name, acks(0, timeout), Box::new(readers));
    (node, hides, turns)
}

/// Waits for a condition.
fn wait(is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

#[test]
fn a_write_is_answered_once_readers_see_it_and_no_other_is_taken_until_then() {
    let server = Server::start("redis-server", &[]);
    let (node, hides, turns) = behind(&server, "x", 600_000);
    let hidden = node.ask("x", 1, None);
    // In each turn, answers come after readers.
    wait(|| turns.load(SeqCst) > 1);
    let later = node.ask("y", 1, None);
    let now = turns.load(SeqCst);
    wait(|| turns.load(SeqCst) > now + 1);
    assert_eq!(node.shared.asked.lock().unwrap().len(), 1);
    assert!(node.shared.answered.lock().unwrap().is_empty());
    hides.store(false, SeqCst);
    assert!(matches!(node.answers("x", hidden, 1)[0], Ok(Answer::Done { .. })));
    assert!(matches!(node.answers("y", later, 1)[0], Ok(Answer::Done { .. })));
    node.end();
}

#[test]
fn a_write_that_readers_do_not_see_in_time_is_answered_as_unknown_and_others_are_refused() {
    let server = Server::start("redis-server", &[]);
    let (node, hides, _) = behind(&server, "x", 1000);
    assert_eq!(node.tried("x", 1, None), [Ok(Answer::Unknown)]);
    let is_lost = |news: &News| matches!(news, News::Lost(_));
    wait(|| node.shared.news.lock().unwrap().iter().any(is_lost));
    let refused = node.ask("x", 1, None);
    wait(|| node.shared.refused.lock().unwrap().contains(&Refused::Behind));
    hides.store(false, SeqCst);
    // The client of this test repeats a write that was refused.
    assert_eq!(sums(&[node.answers("x", refused, 1).remove(0).unwrap()]), [2]);
    node.end();
}

#[test]
fn an_acknowledged_write_that_readers_do_not_see_in_time_is_answered_as_unknown() {
    let server = Server::start("redis-server", &[]);
    let other = Running::start(&server, "b", Pace::default());
    let (node, hides, _) = behind(&server, "x", 1000);
    assert_eq!(node.tried("x", 1, Some(1)), [Ok(Answer::Unknown)]);
    hides.store(false, SeqCst);
    assert_eq!(node.tried("x", 1, Some(1)).len(), 1);
    node.end();
    other.end();
}
