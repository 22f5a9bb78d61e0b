// Made by `make generate` from wire/: change that.

//! The figures of `il1_stats`, in the order of the reply.

use interlock_core::queue::types::Stats;

/// The figures that the scheduler does not count.
pub struct Others {
    /// Keys with unsettled messages that have a place.
    pub lanes: u64,
    /// Paused keys, and one more if the queue is paused.
    pub paused: u64,
    /// 1 if the queue refuses puts, else 0.
    pub sealed: u64,
    /// Results kept.
    pub results: u64,
    /// Bytes of the results kept.
    pub result_bytes: u64,
    /// Sequence of the oldest message that can be leased, whatever its priority (or is on a paused
    /// key and has not come up yet), without those counted in `limited`; 0 if there is none.
    pub oldest_ready: u64,
    /// Sequence of the oldest message that waits; 0 if none does. It is searched for behind up to
    /// 100 held messages, 100 leased ones, 100 that back off, 100 paused keys, the message that
    /// would be leased next, and the first barrier.
    pub oldest_waiting: u64,
    /// 1 if there is no room for a message of one byte, else 0.
    pub full: u64,
    /// Riders: leased messages that wait for the one before them in their run (clause 30); `leased`
    /// contains them.
    pub riding: u64,
}

/// Returns all figures by their names.
pub fn named(counts: &Stats, others: &Others) -> Vec<(&'static str, u64)> {
    vec![
        ("unsettled", counts.unsettled),
        ("bytes", counts.bytes),
        ("delayed", counts.delayed),
        ("waiting", counts.waiting),
        ("ready", counts.ready),
        ("leased", counts.leased),
        ("backing_off", counts.backing_off),
        ("held", counts.held),
        ("dead", counts.dead),
        ("puts", counts.puts),
        ("leases", counts.leases),
        ("acks", counts.acks),
        ("retries", counts.retries),
        ("releases", counts.releases),
        ("leases_expired", counts.leases_expired),
        ("revoked", counts.revoked),
        ("dead_lettered", counts.dead_lettered),
        ("cancelled", counts.cancelled),
        ("skipped", counts.skipped),
        ("requeued", counts.requeued),
        ("deduplicated", counts.deduplicated),
        ("lanes", others.lanes),
        ("paused", others.paused),
        ("sealed", others.sealed),
        ("results", others.results),
        ("result_bytes", others.result_bytes),
        ("oldest_ready", others.oldest_ready),
        ("oldest_waiting", others.oldest_waiting),
        ("messages_expired", counts.messages_expired),
        ("dead_expired", counts.dead_expired),
        ("full", others.full),
        ("limited", counts.limited),
        ("groups", counts.groups),
        ("parked", counts.parked),
        ("coalesced", counts.coalesced),
        ("riding", others.riding),
    ]
}
