//! The hub without sockets and threads: one worker's state, and sessions that are fed bytes.

use std::sync::Arc;

use interlock_hub::access::registry::Card;
use interlock_hub::session::{Session, Step};
use interlock_hub::shared::mailbox::{Mail, Mailbox};
use interlock_hub::shared::settings::Settings;
use interlock_hub::shared::{Core, Local, Shared};

/// One worker's state, and no thread.
pub struct Hub {
    pub shared: Shared,
    pub local: Local,
}

pub struct Client {
    pub session: Session,
    pub out: Vec<u8>,
}

impl Hub {
    pub fn new(settings: Settings) -> Self {
        let mailboxes = vec![Mailbox::new().unwrap()];
        let shared = Shared::new(settings, mailboxes, 0).unwrap();
        let local = Local::new(0, shared.live());
        Hub { shared, local }
    }

    pub fn client(&self, slot: u32) -> Client {
        let card =
            Card { address: format!("c:{slot}"), ..Card::new(slot.into(), 0, slot.into(), 0) };
        let card = Arc::new(card);
        self.shared.registry.add(card.clone());
        Client { session: Session::new(card, slot, &self.shared.live().users), out: Vec::new() }
    }

    /// Runs the session on these bytes as a worker would; the runs of what it published.
    pub fn feed(&mut self, client: &mut Client, bytes: &[u8]) -> (Step, usize) {
        let (mut at, mut runs) = (0, 0);
        loop {
            let mut core =
                Core { shared: &self.shared, local: &mut self.local, now: 0, clock: || 0 };
            let step = client.session.run(bytes, &mut at, &mut core, &mut client.out);
            if step != Step::Sync {
                return (step, runs);
            }
            runs += self.deliver(client);
        }
    }

    /// Hands what was published to `client`, if it is subscribed.
    pub fn deliver(&mut self, client: &mut Client) -> usize {
        let mut runs = 0;
        let chunks = self.local.chunk.take();
        self.shared.sequence(0, chunks);
        for mail in self.shared.mailboxes[0].take() {
            let Mail::Chunk(chunk) = mail else { continue };
            for run in &chunk.runs {
                runs += 1;
                let slots = self.local.subscribers.of(run.kind, chunk.name(run));
                for _ in slots.iter().filter(|&&slot| slot == client.session.state.slot) {
                    let bytes = chunk.bytes(client.session.state.resp3);
                    client.out.extend_from_slice(&bytes[run.start as usize..run.end as usize]);
                }
            }
        }
        runs
    }

    #[allow(dead_code, reason = "each test program has what all of them need")]
    pub fn talk(&mut self, client: &mut Client, bytes: &[u8]) -> String {
        self.feed(client, bytes);
        self.deliver(client);
        String::from_utf8(std::mem::take(&mut client.out)).unwrap()
    }
}
