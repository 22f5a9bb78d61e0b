// Made by `make generate` from wire/: change that.

//! The counts of a queue that the scheduler keeps.

/// Counts of now, and since the queue was created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The sum of `delayed`, `waiting`, `ready`, `leased`, `backing_off`, `held` and `parked`.
    pub unsettled: u64,
    /// Size of the unsettled messages; 0 if the queue has no `maxbytes`.
    pub bytes: u64,
    /// Messages that are not due yet.
    pub delayed: u64,
    /// Messages blocked by an earlier conflicting message, or paused (the queue or a key).
    pub waiting: u64,
    /// Messages that can be leased now, or wait only for a limit or a rate.
    pub ready: u64,
    /// Messages being handled.
    pub leased: u64,
    /// Messages that failed and wait for the next attempt.
    pub backing_off: u64,
    /// Messages that wait for an operator.
    pub held: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages put, including requeued ones; not puts with a known dedup string.
    pub puts: u64,
    /// Messages leased.
    pub leases: u64,
    /// Messages acknowledged.
    pub acks: u64,
    /// Messages returned for a further attempt: nacks, lost leases, revocations.
    pub retries: u64,
    /// Leases released unused.
    pub releases: u64,
    /// Leases that expired.
    pub leases_expired: u64,
    /// Leases that an operator or a handler's timeout ended.
    pub revoked: u64,
    /// Messages that became dead letters, for any reason.
    pub dead_lettered: u64,
    /// Messages cancelled.
    pub cancelled: u64,
    /// Held messages that were skipped.
    pub skipped: u64,
    /// Dead letters that were requeued.
    pub requeued: u64,
    /// Puts with a known dedup string.
    pub deduplicated: u64,
    /// Messages dropped because they had expired when their turn came.
    pub messages_expired: u64,
    /// Dead letters removed because of their age.
    pub dead_expired: u64,
    /// Those of the ready messages that a lease call found waiting for a limit or a rate (clauses
    /// 26 and 27).
    pub limited: u64,
    /// Groups with unsettled messages (clause 28).
    pub groups: u64,
    /// Messages that hold no place until a paused or stuck key opens (clause 31).
    pub parked: u64,
    /// Puts that replaced the payload of an earlier message (clause 29); `puts` does not count
    /// them.
    pub coalesced: u64,
}

impl Stats {
    /// Returns each count with its name, in the order of the fields.
    pub fn named(&self) -> [(&'static str, u64); 27] {
        let Stats {
            unsettled,
            bytes,
            delayed,
            waiting,
            ready,
            leased,
            backing_off,
            held,
            dead,
            puts,
            leases,
            acks,
            retries,
            releases,
            leases_expired,
            revoked,
            dead_lettered,
            cancelled,
            skipped,
            requeued,
            deduplicated,
            messages_expired,
            dead_expired,
            limited,
            groups,
            parked,
            coalesced,
        } = *self;
        [
            ("unsettled", unsettled),
            ("bytes", bytes),
            ("delayed", delayed),
            ("waiting", waiting),
            ("ready", ready),
            ("leased", leased),
            ("backing_off", backing_off),
            ("held", held),
            ("dead", dead),
            ("puts", puts),
            ("leases", leases),
            ("acks", acks),
            ("retries", retries),
            ("releases", releases),
            ("leases_expired", leases_expired),
            ("revoked", revoked),
            ("dead_lettered", dead_lettered),
            ("cancelled", cancelled),
            ("skipped", skipped),
            ("requeued", requeued),
            ("deduplicated", deduplicated),
            ("messages_expired", messages_expired),
            ("dead_expired", dead_expired),
            ("limited", limited),
            ("groups", groups),
            ("parked", parked),
            ("coalesced", coalesced),
        ]
    }
}
