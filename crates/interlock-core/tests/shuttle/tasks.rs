//! Waiters that are futures, some of which are dropped before they end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use shuttle::future;

use super::*;

/// A get as a task waits for it; dropped, it leaves the line, and a message it was given goes back.
struct Get {
    queue: Arc<Queue>,
    wait: Wait,
}

impl Get {
    fn new(queue: &Arc<Queue>, kind: Kind) -> Self {
        Get { queue: queue.clone(), wait: Wait::new(Want::Message(kind), Time::MAX) }
    }
}

impl Future for Get {
    type Output = Result<(Grant, u32), Ended>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Get { queue, wait } = &mut *self;
        let Want::Message(kind) = wait.want() else { unreachable!("made by `new`") };
        match queue.get_or_wait(kind, 0, |p, _| *p, wait, context.waker()) {
            Look::Found(found) => Poll::Ready(Ok(found)),
            Look::Ended(ended) => Poll::Ready(Err(ended)),
            Look::Sleep(_) => Poll::Pending,
        }
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        if self.wait.is_parked() {
            self.queue.give_up(&mut self.wait);
        }
    }
}

#[test]
fn tasks_and_threads_wait_in_one_order() {
    explore(|| {
        let queue = queue(endless());
        let task = {
            let queue = queue.clone();
            future::spawn(async move { Get::new(&queue, Kind::Any).await.unwrap().1 })
        };
        let thread = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1);
        put(&queue, "a", 1).unwrap();
        put(&queue, "b", 2).unwrap();
        let got = vec![future::block_on(task).unwrap(), thread.join().unwrap()];
        assert_eq!(sorted(vec![got]), [1, 2]);
    });
}

/// The task polls once and is dropped while the message comes.
#[test]
fn a_dropped_task_passes_its_wake_up_on() {
    explore(|| {
        let queue = queue(endless());
        let leaver = start_dropping(&queue, Kind::Any);
        let stayer = {
            let queue = queue.clone();
            future::spawn(async move { Get::new(&queue, Kind::Unkeyed).await.unwrap().1 })
        };
        put(&queue, "", 1).unwrap();
        if leaver.join().unwrap() {
            put(&queue, "", 2).unwrap();
        }
        future::block_on(stayer).unwrap();
        assert_eq!(queue.getters_parked(), 0);
    });
}

/// Starts a get that is dropped after one poll; gives whether it got a message before.
fn start_dropping(queue: &Arc<Queue>, kind: Kind) -> JoinHandle<bool> {
    let queue = queue.clone();
    thread::spawn(move || {
        let mut get = Box::pin(Get::new(&queue, kind));
        let found = get.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        drop(get);
        found
    })
}

#[test]
fn a_shutdown_ends_tasks() {
    explore(|| {
        let queue = queue(endless());
        let tasks: Vec<_> = [Kind::Any, Kind::Keyed]
            .map(|kind| {
                let queue = queue.clone();
                future::spawn(async move { Get::new(&queue, kind).await.map(|_| ()) })
            })
            .into();
        let closer = start(&queue, |queue| queue.shut_down());
        for task in tasks {
            assert_eq!(future::block_on(task).unwrap(), Err(Ended::ShutDown));
        }
        join([closer]);
    });
}

/// One task after another waits with the same future's place in line, polled more than once.
#[test]
fn a_task_polled_without_a_wake_up_keeps_its_position() {
    explore(|| {
        let queue = queue(endless());
        let task = {
            let queue = queue.clone();
            future::spawn(async move {
                let mut get = Box::pin(Get::new(&queue, Kind::Any));
                for _ in 0..2 {
                    let polled = get.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    if let Poll::Ready(found) = polled {
                        return found.unwrap().1;
                    }
                    future::yield_now().await;
                }
                get.await.unwrap().1
            })
        };
        let thread = start(&queue, |queue| get(queue, Kind::Any, Time::MAX).unwrap().1);
        put(&queue, "a", 1).unwrap();
        put(&queue, "b", 2).unwrap();
        let got = vec![future::block_on(task).unwrap(), thread.join().unwrap()];
        assert_eq!(sorted(vec![got]), [1, 2]);
    });
}

/// Clause 5: its loop is busy, or stopped, and it is called and does not come.
#[test]
fn a_woken_task_that_does_not_run_withholds_no_message_from_a_thread() {
    explore(|| {
        let queue = queue(endless());
        let mut task = Wait::new(Want::Message(Kind::Any), Time::MAX).on_loop(1);
        let look = queue.get_or_wait(Kind::Any, 0, |p, _| *p, &mut task, Waker::noop());
        assert!(matches!(look, Look::Sleep(_)));
        let threads: Vec<_> = [Kind::Any, Kind::Unkeyed]
            .map(|kind| start(&queue, move |queue| get(queue, kind, Time::MAX).unwrap().1))
            .into();
        put(&queue, "", 1).unwrap();
        put(&queue, "", 2).unwrap();
        assert_eq!(sorted(vec![join(threads)]), [1, 2]);
        queue.give_up(&mut task);
    });
}

/// Clause 11: the same of room.
#[test]
fn a_woken_task_that_does_not_run_withholds_no_room_from_a_thread() {
    explore(|| {
        let queue = queue(Options { max_messages: 1, ..endless() });
        let id = put(&queue, "", 1).unwrap();
        let mut task = Wait::new(Want::Room(1, 0), Time::MAX).on_loop(1);
        let look = queue.put_or_wait(&Put::default(), &mut Some(2), &mut task, Waker::noop());
        assert!(matches!(look, Look::Sleep(_)));
        let thread = start(&queue, |queue| put(queue, "", 3).unwrap());
        assert_eq!(queue.call(|scheduler, now| scheduler.cancel(now, id)), Some(1));
        thread.join().unwrap();
        queue.give_up(&mut task);
    });
}
