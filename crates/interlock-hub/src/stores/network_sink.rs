//! A sink that sends messages to a server.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

use interlock_stores::network::{self, Upstream};
use interlock_stores::StoreError;

use super::load::{Left, Load};
use super::settings::NetworkSettings;
use super::sink::Sink;
use super::store::{Link, Surroundings};

pub struct NetworkSink {
    upstream: Upstream,
    link: Arc<Link>,
}

impl NetworkSink {
    /// `sender` is the origin of the spool before it.
    pub fn new(settings: &NetworkSettings, sender: u128, around: &Surroundings) -> NetworkSink {
        let settings = network::Settings { sender, ..settings.upstream.clone() };
        let upstream = Upstream::new(settings);
        let link = Arc::new(Link { connected: AtomicBool::new(false), stop: upstream.stop() });
        around.figures(|figures| figures.add_link(&link));
        NetworkSink { upstream, link }
    }

    fn tell(&self) {
        self.link.connected.store(self.upstream.is_connected(), Relaxed);
    }
}

impl Sink for NetworkSink {
    fn write(&mut self, load: &Load, left: &mut Left) -> Result<(), StoreError> {
        let delivered = self.upstream.deliver(left.of(load).map(|(_, message)| message));
        self.tell();
        match delivered {
            Ok(()) => {
                left.all_done();
                Ok(())
            }
            Err(undelivered) => {
                left.first_done(undelivered.acknowledged);
                Err(undelivered.error)
            }
        }
    }

    fn withdraw(&mut self, _load: &Load, _left: &mut Left) {}

    fn tick(&mut self, _now: u64) -> Result<(), StoreError> {
        self.tell();
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}
