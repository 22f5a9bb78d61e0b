//! Shutting a queue down, which ends waiting calls (clauses 15, 25).

use crate::queue::waiting::waiters::Wait;
use crate::queue::{Ended, Inner, Queue};
use crate::sync::RawLock;

impl<P, L: RawLock> Queue<P, L> {
    /// Refuses further puts; gets continue until everything is settled (clause 15).
    ///
    /// ```
    /// # use interlock_core::queue::{scheduler::Put, types::Options, Ended, Queue};
    /// # let queue = Queue::new(Options::default());
    /// queue.put(&Put::default(), 1).unwrap();
    /// queue.shut_down();
    /// assert_eq!(queue.put(&Put::default(), 2), Err(Ended::ShutDown));
    /// let (grant, _) = queue.get(|_, _| ()).unwrap();
    /// queue.ack(grant.handle).unwrap();
    /// queue.join();
    /// assert_eq!(queue.get(|_, _| ()), Err(Ended::ShutDown));
    /// ```
    pub fn shut_down(&self) {
        self.locked(|inner, _| inner.closed = true);
    }

    /// As `shut_down`; and a get that finds nothing ready does not wait for what is leased, unless it was
    /// made to wait to the end.
    ///
    /// ```
    /// # use interlock_core::queue::{scheduler::Put, types::{Kind, Options}, Ended, Queue};
    /// # let queue = Queue::new(Options::default());
    /// queue.put(&Put::default(), 1).unwrap();
    /// let (grant, _) = queue.get(|_, _| ()).unwrap();
    /// queue.shut_down();
    /// assert_eq!(queue.try_get(Kind::Any, 1, |_, _| ()), Ok(None));
    /// queue.shut_down_at_once();
    /// assert_eq!(queue.try_get(Kind::Any, 1, |_, _| ()), Err(Ended::ShutDown));
    /// queue.ack(grant.handle).unwrap();
    /// ```
    pub fn shut_down_at_once(&self) {
        self.locked(|inner, _| {
            (inner.closed, inner.over) = (true, true);
            inner.waiters.call_getters();
        });
    }

    pub fn is_shut_down(&self) -> bool {
        self.inner.lock().closed
    }
}

impl<P> Inner<P> {
    /// Returns whether a get that found nothing would wait in vain.
    #[inline]
    pub(in crate::queue) fn is_over(&self, to_the_end: bool) -> bool {
        self.closed && ((self.over && !to_the_end) || self.scheduler.unsettled() == 0)
    }

    /// Returns the reason why a get that found nothing would wait in vain.
    pub(in crate::queue) fn never(&self, wait: &Wait) -> Option<Ended> {
        if self.is_over(wait.to_the_end) {
            return Some(Ended::ShutDown);
        }
        let stuck = self.closed && self.waiters.are_stuck(Some(wait), &self.scheduler);
        stuck.then_some(Ended::Stuck)
    }
}
