//! The events of a node: its news, and changes of its state, for which other threads wait.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::ports::News;

#[derive(Default)]
pub struct Events {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    number: u64,
    news: Vec<News>,
}

impl Events {
    pub fn tell(&self, news: News) {
        self.lock().news.push(news);
        self.add();
    }

    /// Counts an event, and wakes those that wait.
    pub fn add(&self) {
        self.lock().number += 1;
        self.more.notify_all();
    }

    /// Removes and returns the news.
    pub fn take(&self) -> Vec<News> {
        std::mem::take(&mut self.lock().news)
    }

    /// Waits until there are more events than those `seen`, or the time is over. Returns their number.
    pub fn wait(&self, seen: u64, time: Duration) -> u64 {
        let waited = self.more.wait_timeout_while(self.lock(), time, |state| state.number == seen);
        waited.unwrap_or_else(PoisonError::into_inner).0.number
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn who_waits_for_an_event_is_woken_by_news_and_misses_none() {
        let events = Events::default();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| events.wait(0, LONG));
            events.tell(News::Stuck);
            assert_eq!(waits.join().unwrap(), 1);
        });
        events.add();
        assert_eq!(events.wait(1, LONG), 2, "it came before the wait");
        assert_eq!(events.wait(2, Duration::ZERO), 2, "no event came");
        assert!(matches!(events.take()[..], [News::Stuck]) && events.take().is_empty());
    }
}
