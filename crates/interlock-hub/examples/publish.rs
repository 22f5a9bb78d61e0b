//! Measures the cost of a PUBLISH in a worker, without system calls: a session is fed pipelines.
//! Prints ns per message; `publish ROUNDS SUBSCRIBERS` runs that many pipelines only, for a
//! profiler, to topics with that many subscribers each.

use std::sync::Arc;
use std::time::Instant;

use interlock_hub::access::registry::Card;
use interlock_hub::session::{Session, Step};
use interlock_hub::shared::mailbox::Mailbox;
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::{Core, Local, Shared};
use interlock_hub::topics::directory::{Name, SubscriptionKind};

/// Messages of a pipeline, and topics that they go round.
const BATCH: usize = 100;
const TOPICS: usize = 50;

fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|text| text.parse().ok()).collect();
    if let [rounds, ref subscribers @ ..] = given[..] {
        return println!("{:.0}", publish(rounds, subscribers.first().copied().unwrap_or(0)));
    }
    let best = (0..7).map(|_| publish(5000, 0)).fold(f64::MAX, f64::min);
    println!("{best:.0} ns a message");
}

fn publish(rounds: usize, subscribers: usize) -> f64 {
    let mailboxes = vec![Mailbox::new().expect("an eventfd")];
    let shared = Shared::new(Settings::default(), mailboxes, 0).expect("no journal to open");
    let mut local = Local::new(0, shared.live());
    let card = Arc::new(Card::new(1, 0, 1, 0));
    let mut session = Session::new(card, 1, &shared.live().users);
    let topic = |number: usize| format!("orders.{:03}", number % TOPICS);
    for number in 0..TOPICS * subscribers {
        let name = Name::from(topic(number).as_bytes());
        shared.directory.join(SubscriptionKind::Topic, &name, 0);
    }
    let payload = "p".repeat(64);
    let one = |number: usize| {
        let topic = topic(number);
        format!("*3\r\n$7\r\nPUBLISH\r\n$10\r\n{topic}\r\n$64\r\n{payload}\r\n")
    };
    let request: String = (0..BATCH).map(one).collect();
    let (mut out, mut spent) = (Vec::new(), 0);
    for _ in 0..rounds {
        out.clear();
        let begun = Instant::now();
        let mut core = Core { shared: &shared, local: &mut local, now: 0, clock: || 0 };
        let step = session.run(request.as_bytes(), &mut 0, &mut core, &mut out);
        spent += begun.elapsed().as_nanos();
        let answers = BATCH * format!(":{subscribers}\r\n").len();
        assert!(step == Step::Idle && out.len() == answers, "{step:?}");
        drop(local.chunk.take());
    }
    spent as f64 / (rounds * BATCH) as f64
}
