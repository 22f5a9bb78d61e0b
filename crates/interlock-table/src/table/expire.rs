//! Expiry and last access of rows, with the names of redis-py.

use std::time::Duration;

use crate::error::Error;
use crate::layout::geometry::ACCESS;
use crate::protocol::insert::expired;
use crate::sync::Ordering::*;
use crate::table::{Table, Ttl};

impl Table {
    /// Has a row expire after this duration. Returns whether it exists.
    pub fn expire(&self, key: &[u8], ttl: Duration) -> Result<bool, Error> {
        let expiry = self.expiry(Ttl::For(ttl), self.now());
        Ok(self.change_word(key, 0, |_| Ok((expiry, ())))?.is_some())
    }

    /// Like `expire`, if `when` allows it for the row's remaining time (`None`: no expiry). Returns whether
    /// it was done; `None` if the row is missing.
    pub fn expire_when(
        &self,
        key: &[u8],
        ttl: Duration,
        when: impl Fn(Option<Duration>) -> bool,
    ) -> Result<Option<bool>, Error> {
        let now = self.now();
        let wanted = self.expiry(Ttl::For(ttl), now);
        self.change_word(key, 0, |expiry| {
            let left = expiry.checked_sub(now).map(Duration::from_nanos);
            let done = when(left.filter(|_| expiry != 0));
            Ok((if done { wanted } else { expiry }, done))
        })
    }

    /// Has a row live for ever. Returns whether it is there and would have expired.
    pub fn persist(&self, key: &[u8]) -> Result<bool, Error> {
        Ok(self.change_word(key, 0, |expiry| Ok((0, expiry != 0)))?.unwrap_or(false))
    }

    /// Remaining time of a row, `None` within for ever; `None` if the row is missing.
    pub fn ttl(&self, key: &[u8]) -> Result<Option<Option<Duration>>, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let read = self.read(&key, |value| value[0].load(Relaxed))?;
        let expiry = read.map(|(.., expiry)| expiry).filter(|expiry| !expired(*expiry, now));
        Ok(expiry.map(|expiry| match expiry {
            0 => None,
            expiry => Some(Duration::from_nanos(expiry - now)),
        }))
    }

    /// Notes an access to a row. Returns whether it is there.
    pub fn touch(&self, key: &[u8]) -> Result<bool, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let read = self.read(&key, |value| value[0].load(Relaxed))?;
        let Some((memory, slot, _)) = read.filter(|(.., expiry)| !expired(*expiry, now)) else {
            return Ok(false);
        };
        memory.word(slot + ACCESS).store(now, Relaxed);
        Ok(true)
    }

    /// Time since a row was accessed, to about an eighth of a second; `None` if the row is missing.
    /// Asking is not an access.
    pub fn idle(&self, key: &[u8]) -> Result<Option<Duration>, Error> {
        let (key, now) = (self.key(key)?, self.now());
        let read = self.read(&key, |value| value[0].load(Relaxed))?;
        let found = read.filter(|(.., expiry)| !expired(*expiry, now));
        Ok(found.map(|(memory, slot, _)| {
            let access = memory.word(slot + ACCESS).load(Relaxed);
            Duration::from_nanos(now.saturating_sub(access))
        }))
    }
}
