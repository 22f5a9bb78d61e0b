//! Messages that many workers publish at once have one order in every mailbox.

use std::sync::Barrier;
use std::thread;

use interlock_hub::shared::mailbox::{Mail, Mailbox};
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::Shared;
use interlock_hub::topics::chunk::Builder;
use interlock_hub::topics::directory::{Interest, SubscriptionKind};

/// A message through sockets passes the place where the order is made once in a long while; here
/// the workers do nothing else, so that an order which is not kept shows in every run.
#[test]
fn chunks_of_all_workers_are_in_one_order_in_all_mailboxes() {
    for _ in 0..ROUNDS {
        let mailboxes = (0..WORKERS).map(|_| Mailbox::new().unwrap()).collect();
        let shared = Shared::new(Settings::default(), mailboxes, 0).unwrap();
        let start = Barrier::new(WORKERS);
        thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (shared, start) = (&shared, &start);
                scope.spawn(move || {
                    start.wait();
                    for number in 0..CHUNKS {
                        shared.sequence(worker, chunk(worker, number));
                    }
                });
            }
        });
        let orders: Vec<Vec<Vec<u8>>> = shared.mailboxes.iter().map(order).collect();
        assert_eq!(orders[0].len(), WORKERS * CHUNKS);
        for other in &orders[1..] {
            let first = orders[0].iter().zip(other).position(|(one, two)| one != two);
            assert_eq!(first, None, "where two mailboxes differ");
        }
        assert!(shared.mailboxes.iter().all(|mailbox| mailbox.waiting.load(RELAXED) == 0));
    }
}

fn chunk(worker: usize, number: usize) -> Vec<std::sync::Arc<interlock_hub::topics::chunk::Chunk>> {
    let mut builder = Builder::default();
    let all = Interest { receivers: WORKERS as u32, workers: (1 << WORKERS) - 1 };
    let message = format!("{worker}:{number}");
    builder.add(SubscriptionKind::Topic, b"t", b"t", message.as_bytes(), all);
    builder.take()
}

fn order(mailbox: &Mailbox) -> Vec<Vec<u8>> {
    let bytes = |mail| match mail {
        Mail::Chunk(chunk) => chunk.bytes(false).to_vec(),
        _ => panic!("not what was sent"),
    };
    mailbox.take().into_iter().map(bytes).collect()
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;
const WORKERS: usize = 4;
const CHUNKS: usize = 5_000;
const ROUNDS: usize = 20;
