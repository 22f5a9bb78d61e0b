//! The counters since the start, for INFO.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// Counts since the start. Relaxed: each is right by itself, not beside the others.
        #[derive(Default)]
        pub struct Counters { $($(#[doc = $doc])* pub $name: AtomicU64,)* }

        impl Counters {
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Relaxed)),)*]
            }

            /// As at the start.
            pub fn reset(&self) {
                $(self.$name.store(0, Relaxed);)*
            }
        }
    };
}

counters! {
    /// Connections taken.
    total_connections_received,
    /// Requests understood.
    total_commands_processed,
    total_error_replies,
    total_net_input_bytes,
    total_net_output_bytes,
    /// Refused for `maxclients`.
    rejected_connections,
    /// Refused for `max_per_address`.
    rejected_connections_address,
    /// The process had no descriptor left.
    accept_errors,
    /// Messages published, with or without receivers.
    messages_published,
    /// Copies handed to subscribers; to those that asked for CLIENT SLOW drop, those sent.
    messages_delivered,
    /// Left out for subscribers that asked for it by CLIENT SLOW drop.
    messages_dropped,
    /// Messages of other hubs: received, repeated, and already known.
    messages_relayed,
    messages_relayed_again,
    relay_circles,
    /// Closed over their soft or hard limit.
    client_output_buffer_limit_disconnections,
    /// Closed over the limit of an unfinished request.
    client_query_buffer_limit_disconnections,
    /// Refused, for the client has as many as it may.
    subscriptions_refused,
    /// Closed for all clients together held more than they may, and these the most.
    evicted_clients,
    protocol_errors,
    /// Closed for they speak HTTP.
    http_disconnections,
    /// Connections that did not come through the handshake, or broke TLS later.
    tls_errors,
    idle_disconnections,
    /// A password that is not the user's, or no such user.
    login_failures,
    /// Told to try again, for too many waited to be looked at.
    login_refusals,
    /// Closed for they had not said in time who they are.
    login_timeouts,
    /// Calls that the user has no right to.
    permission_errors,
    /// Closed for their user is gone, or may not receive any more what they subscribed to.
    permission_disconnections,
    /// Configurations taken while the hub ran.
    configurations_applied,
    connections_killed,
    /// Cut at the end of a drain.
    connections_cut,
}

pub fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}
