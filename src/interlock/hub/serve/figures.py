"""The figures of a hub's INFO: each once, with its kind, its unit and its meaning.

The reference page, `interlock hub info` and /metrics are made from this table. /metrics shows a
figure that the server has and this table lacks with an unknown kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricKind(Enum):
    """The kind of a figure: the use of its value."""

    COUNTER = "counter"
    """Only rises, from 0 at the start: a rate makes sense."""

    GAUGE = "gauge"
    """Rises and falls."""

    LABEL = "label"
    """Identifies the hub; not a quantity."""

    TEXT = "text"
    """Text that changes; /metrics leaves it out."""


class Unit(Enum):
    """Unit of a value, which decides how it is formatted for people."""

    NUMBER = "number"
    BYTES = "bytes"
    SECONDS = "seconds"
    MOMENT = "moment"
    """Seconds since 1970."""


@dataclass(frozen=True)
class Figure:
    """One figure."""

    name: str
    """Name in INFO."""

    kind: MetricKind
    section: str
    """Section of `interlock hub info`; empty if it is not shown."""

    label: str
    """Name there."""

    help: str
    """One line."""

    unit: Unit = Unit.NUMBER
    exposed_as: str = ""
    """Name of the metric if it is not made from `name`."""

    @property
    def metric(self) -> str:
        """Name in /metrics; empty for a label and a text."""
        if self.kind in (MetricKind.LABEL, MetricKind.TEXT):
            return ""
        return self.exposed_as or metric_name(self.name, self.kind)


def metric_name(name: str, kind: MetricKind | None = None) -> str:
    """Return an INFO name in Prometheus form: counters end in `_total`, and milliseconds become
    seconds."""
    if kind is MetricKind.COUNTER:
        name = f"{name.removeprefix('total_')}_total"
    return PREFIX + (f"{name.removesuffix('_ms')}_seconds" if name.endswith("_ms") else name)


def label(name: str, help: str, section: str = "", shown_as: str = "") -> Figure:
    """Return a figure that identifies the hub."""
    return Figure(name, MetricKind.LABEL, section, shown_as, help)


def words(name: str, section: str, label: str, help: str) -> Figure:
    """Return a figure that is text, not a number."""
    return Figure(name, MetricKind.TEXT, section, label, help)


def gauge(name: str, section: str, label: str, help: str, unit: Unit = Unit.NUMBER,
          exposed_as: str = "") -> Figure:  # fmt: skip
    """Return a figure that rises and falls."""
    return Figure(name, MetricKind.GAUGE, section, label, help, unit, exposed_as)


def counter(name: str, section: str, label: str, help: str, unit: Unit = Unit.NUMBER) -> Figure:
    """Return a figure that only rises."""
    return Figure(name, MetricKind.COUNTER, section, label, help, unit)


PREFIX = "interlock_hub_"

FIGURES = (
    label("interlock_version", "version of the hub", "server", "version"),
    label("redis_version", "version of Redis whose commands it has", "server", "redis version"),
    label("redis_mode", "standalone"),
    label("process_id", "process id", "server", "process"),
    label("tcp_port", "TCP port, or 0", "server", "TCP port"),
    label("run_id", "id of this run of the hub", "server", "run"),
    label("os", "operating system"),
    label("arch_bits", "64"),
    label("multiplexing_api", "epoll"),
    label("loading", "0, because a hub loads nothing"),
    label("role", "master"),
    label("cluster_enabled", "0, because a hub is not part of a cluster"),
    gauge("uptime_in_seconds", "server", "uptime", "seconds since the start", Unit.SECONDS,
          "interlock_hub_uptime_seconds"),
    words("uptime_in_days", "", "", "the same in whole days"),
    gauge("io_threads_active", "server", "workers", "threads that serve connections", Unit.NUMBER,
          "interlock_hub_workers"),
    counter("configurations_applied", "server", "reconfigured",
            "configuration changes since the start"),
    counter("used_cpu_user", "server", "CPU, own", "CPU seconds spent in the process",
            Unit.SECONDS),
    counter("used_cpu_sys", "server", "CPU, kernel", "CPU seconds spent in the kernel for it",
            Unit.SECONDS),
    gauge("connected_clients", "connections", "open", "open connections"),
    gauge("maxclients", "connections", "at most", "maximum number of open connections"),
    gauge("pubsub_clients", "connections", "subscribed", "connections with a subscription"),
    gauge("blocked_clients", "connections", "waiting for a queue",
          "connections whose call waits for a message, for room or for a result"),
    counter("total_connections_received", "connections", "taken", "connections accepted"),
    counter("rejected_connections", "connections", "refused, too many",
            "connections refused because of maxclients"),
    counter("rejected_connections_address", "connections", "refused, address",
            "connections refused because of max_per_address"),
    counter("accept_errors", "connections", "not accepted",
            "failures to accept a connection because no descriptor was free"),
    gauge("connected_slaves", "", "", "0, because a hub has no replicas"),
    counter("messages_published", "messages", "published",
            "messages published, with or without subscribers"),
    counter("messages_delivered", "messages", "delivered", "copies delivered to subscribers"),
    counter("messages_dropped", "messages", "dropped",
            "copies dropped for slow subscribers that chose CLIENT SLOW drop"),
    counter("messages_relayed", "messages", "relayed", "messages relayed to this hub"),
    counter("messages_relayed_again", "messages", "again",
            "messages relayed again by other hubs and not delivered again"),
    counter("relay_circles", "messages", "in circles",
            "messages dropped because hubs relay in a circle: they had been here, or in 16 hubs"),
    gauge("pubsub_channels", "messages", "topics", "topics that have a subscriber"),
    gauge("pubsubshard_channels", "messages", "shard topics",
          "shard topics that have a subscriber"),
    gauge("pubsub_patterns", "messages", "patterns", "patterns that have a subscriber"),
    gauge("queues", "queues", "queues", "keyed queues"),
    gauge("queues_bytes", "queues", "bytes",
          "memory of the queues: their messages and all metadata", Unit.BYTES),
    gauge("queues_memory", "queues", "at most", "memory limit of the queues; 0: unlimited",
          Unit.BYTES),
    counter("queues_refused", "queues", "refused for memory",
            "calls refused with OOM, because all queues or a user's are at their memory limit"),
    counter("queues_reclaimed", "queues", "given back",
            "empty queues removed automatically"),
    words("journal_state", "journal", "state",
          "none; ok; short: puts are refused; full: all changes are refused until there is room; "
          "failed: all changes are refused until the hub restarts; closed"),
    words("journal_error", "journal", "trouble",
          "the error that refused calls get"),
    gauge("journal_ok", "", "", "0 while calls are refused because of the journal, else 1"),
    gauge("journal_trouble_since", "journal", "since",
          "start of this state, seconds since 1970; 0 while the journal works", Unit.MOMENT,
          "interlock_hub_journal_trouble_since_timestamp_seconds"),
    gauge("journal_records", "journal", "records", "number of the last record"),
    gauge("journal_unsynced_records", "journal", "not synced",
          "records that the disk has not confirmed yet"),
    gauge("journal_bytes_since_snapshot", "journal", "since the snapshot",
          "bytes written since the last snapshot, or since the start", Unit.BYTES),
    gauge("journal_clock_ahead_seconds", "journal", "clock behind by",
          "seconds by which the time of queues is ahead of the system clock; negative: behind",
          Unit.SECONDS),
    counter("clock_jumps", "clock", "jumps", "changes of the system clock by more than 1 s"),
    gauge("clock_distrusted_seconds", "clock", "distrusted",
          "seconds by which the system clock is ahead of the time used for dates, while the hub "
          "ignores a jump; negative if it is behind", Unit.SECONDS),
    gauge("clock_stable", "clock", "stable",
          "1 once the system clock has not jumped for 10 minutes; until then nothing is deleted by "
          "age"),
    label("aof_enabled", "1 with a journal, for tools that expect this name"),
    words("aof_last_write_status", "", "", "ok or err, for tools that expect this name"),
    counter("total_commands_processed", "requests", "understood", "requests processed"),
    gauge("instantaneous_ops_per_sec", "requests", "a second",
          "requests processed per second, over the last two seconds", Unit.NUMBER,
          "interlock_hub_requests_per_second"),
    gauge("instantaneous_input_kbps", "", "", "KiB received per second, over the last two seconds"),
    gauge("instantaneous_output_kbps", "", "", "KiB sent per second, over the last two seconds"),
    counter("total_error_replies", "requests", "answered by an error",
            "requests answered with an error"),
    counter("login_failures", "requests", "logins refused",
            "logins with a wrong password or an unknown user"),
    counter("login_refusals", "requests", "logins sent away",
            "logins refused because too many were waiting"),
    counter("permission_errors", "requests", "without the right",
            "requests refused because the user lacks the right"),
    counter("subscriptions_refused", "requests", "subscriptions refused",
            "calls refused because of limits.pubsub.subscriptions"),
    counter("total_net_input_bytes", "requests", "received", "bytes received", Unit.BYTES),
    counter("total_net_output_bytes", "requests", "sent", "bytes sent", Unit.BYTES),
    counter("client_output_buffer_limit_disconnections", "disconnections", "read too slowly",
            "connections closed for pending output above limits.normal or limits.pubsub"),
    counter("client_query_buffer_limit_disconnections", "disconnections", "request too long",
            "connections closed because of query_limit"),
    counter("evicted_clients", "disconnections", "held the most",
            "connections closed because all clients together exceeded limits.clients"),
    counter("protocol_errors", "disconnections", "not the protocol",
            "connections closed for invalid Redis protocol"),
    counter("idle_disconnections", "disconnections", "idle",
            "connections closed because of idle_timeout"),
    counter("connections_killed", "disconnections", "killed",
            "connections closed by CLIENT KILL"),
    counter("tls_errors", "disconnections", "TLS failed",
            "connections closed after a failed handshake or a later TLS error"),
    counter("http_disconnections", "disconnections", "spoke HTTP",
            "connections closed because they spoke HTTP, as a tricked browser would"),
    counter("login_timeouts", "disconnections", "never logged in",
            "connections closed because of login_timeout"),
    counter("permission_disconnections", "disconnections", "rights ended",
            "connections closed because a change of users ended their rights"),
    counter("connections_cut", "disconnections", "cut at the end",
            "connections closed with pending output at the end of a drain"),
    gauge("used_memory_rss", "memory", "resident", "memory of the process in bytes", Unit.BYTES,
          "process_resident_memory_bytes"),
    gauge("used_memory_rss_peak", "memory", "its peak", "peak memory of the process in bytes",
          Unit.BYTES, "interlock_hub_resident_memory_peak_bytes"),
    gauge("used_memory", "", "", "the same as used_memory_rss, for tools that expect this name",
          Unit.BYTES, "interlock_hub_used_memory_bytes"),
    gauge("client_output_buffer_bytes", "memory", "owed to clients",
          "bytes of output that clients have not read yet", Unit.BYTES),
    gauge("client_query_buffer_bytes", "memory", "unfinished requests",
          "bytes of incomplete requests", Unit.BYTES),
    gauge("client_subscription_bytes", "memory", "subscriptions",
          "approximate bytes of the clients' subscriptions", Unit.BYTES),
    gauge("clients_bytes", "memory", "clients, all",
          "memory of all clients: pending output, incomplete requests, subscriptions",
          Unit.BYTES),
    gauge("clients_memory", "memory", "at most",
          "limit of that memory, limits.clients; 0: unlimited", Unit.BYTES),
)  # fmt: skip

TABLE_FIGURES = (
    gauge("rows", "table", "rows", "live rows, as last counted"),
    gauge("slots", "table", "slots", "places for rows"),
    gauge("capacity", "table", "capacity", "number of rows that fit"),
    gauge("bytes", "table", "bytes", "memory of the table", Unit.BYTES),
    gauge("expired", "table", "expired",
          "expired rows whose slots have not been reused, as last counted"),
    counter("commands", "table", "commands", "commands of this hub on the table"),
    counter("moves", "table", "moves", "rows moved to make room"),
    counter("overwritten", "table", "overwritten",
            "live rows overwritten because the table was full"),
    counter("overwritten_expired", "table", "overwritten, expired",
            "expired rows overwritten by another key"),
    counter("retries", "table", "read again",
            "reads repeated because of a concurrent write"),
    counter("recovered", "table", "recovered",
            "interrupted writes of dead writers that others completed or undid"),
)  # fmt: skip
"""Figures of each table, by a label: a line `table_NAME` of INFO has `rows=5,slots=16,...`."""

STORE_FIGURES = (
    counter("accepted", "store", "accepted", "messages accepted into the queue"),
    counter("accepted_bytes", "store", "accepted", "bytes of accepted messages", Unit.BYTES),
    counter("written", "store", "written", "messages written"),
    counter("written_bytes", "store", "written", "bytes of written messages", Unit.BYTES),
    gauge("in_flight", "store", "in flight", "messages accepted and not written yet"),
    gauge("in_flight_bytes", "store", "in flight",
          "bytes of the queue in use", Unit.BYTES),
    gauge("oldest_age_ms", "store", "oldest, ms",
          "milliseconds since the oldest message in flight or spooled was published"),
    gauge("spooled", "store", "spooled", "messages waiting for delivery in a spool"),
    gauge("spooled_bytes", "store", "spooled",
          "bytes of spooled messages, with the metadata of each", Unit.BYTES),
    counter("replayed", "store", "replayed", "messages delivered from a spool"),
    gauge("upstreams", "store", "upstreams", "servers that it sends messages to"),
    gauge("connected", "store", "connected", "servers that it is connected to"),
    counter("dropped", "store", "dropped", "messages dropped because the queue was full"),
    counter("retries", "store", "retries", "failed attempts to write that are repeated"),
    counter("errors", "store", "errors", "failures that were logged, each kind once"),
    counter("unsure", "store", "unsure",
            "written messages that may be lost because a later sync failed"),
    counter("lost", "store", "lost",
            "messages of a spool destroyed by damage, as far as known"),
    counter("set_aside", "store", "set aside", "damaged files of a spool that were set aside"),
    counter("files_begun", "store", "files begun", "files begun"),
    counter("files_compressed", "store", "files compressed", "closed files compressed"),
    counter("files_removed", "store", "files removed", "old files removed"),
    gauge("failing", "store", "failing", "1 while it cannot write, else 0"),
)  # fmt: skip
"""Figures of each store, by a label: a line `store_NAME` of INFO has `accepted=5,written=5,...`."""

BY_NAME = {figure.name: figure for figure in FIGURES}
