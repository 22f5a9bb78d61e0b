"""The families of metrics of a worker: each once, with its labels and its meaning.

The families of queues, for an exporter and a hub, are in ``interlock.runtime.queue_figures``.
"""

from __future__ import annotations

from interlock.runtime.queue_figures import Family

__all__ = ["WORKER_FAMILIES"]

OF_A_TASK = ("queue", "task")

WORKER_FAMILIES: dict[str, Family] = {
    "info": Family(
        "interlock_worker_info", "gauge", "version and pool of this worker; always 1",
        ("version", "pool"),
    ),
    "processes": Family(
        "interlock_worker_processes", "gauge", "worker processes that run and have reported", ()
    ),
    "ready": Family(
        "interlock_worker_ready", "gauge", "worker processes that the engine has answered", ()
    ),
    "restarts": Family(
        "interlock_worker_restarts_total", "counter",
        "worker processes that ended unexpectedly and were restarted", (),
    ),
    "concurrency": Family(
        "interlock_worker_concurrency", "gauge", "maximum number of concurrent handlers", ()
    ),
    "running": Family("interlock_worker_running", "gauge", "running handlers"),
    "connected": Family(
        "interlock_worker_connected", "gauge",
        "worker processes whose last call for the queue was answered by the engine",
    ),
    "handled": Family(
        "interlock_worker_handled_total", "counter",
        "messages that handlers were called for, by outcome as seen by the worker",
        (*OF_A_TASK, "outcome"),
    ),
    "wait": Family(
        "interlock_worker_wait_seconds", "histogram",
        "seconds from the put of a message, or the end of its delay, to its lease; first attempts "
        "only",
        OF_A_TASK,
    ),
    "handling": Family(
        "interlock_worker_handling_seconds", "histogram", "seconds that handlers took", OF_A_TASK
    ),
    "lost": Family(
        "interlock_worker_lost_total", "counter",
        "settlements that came too late: the lease had expired or was revoked", OF_A_TASK,
    ),
    "timeouts": Family(
        "interlock_worker_timeouts_total", "counter",
        "handlers that ran longer than their task's timeout", OF_A_TASK,
    ),
    "released": Family(
        "interlock_worker_released_total", "counter",
        "messages returned before a handler had started",
    ),
    "unknown": Family(
        "interlock_worker_unknown_total", "counter",
        "messages of tasks that this worker does not have, kept or returned for another",
    ),
    "renewal_failures": Family(
        "interlock_worker_renewal_failures_total", "counter",
        "lease renewals that the engine did not answer or refused", (),
    ),
    "violations": Family(
        "interlock_worker_violations_total", "counter",
        "findings of the auditor; only with --audit", (),
    ),
    "relays": Family(
        "interlock_worker_relays", "gauge",
        "worker processes that relay the rows of an outbox; at most one of all workers does", (),
    ),
    "tasks_cut": Family(
        "interlock_worker_tasks_cut", "gauge",
        'tasks without their own lines, summed as task="other"', (),
    ),
}  # fmt: skip
"""The keys are the names in a worker's readings; the order is that of the output."""

OUTCOMES = {
    "acked": "the handler returned",
    "retried": "it failed, and the message will be redelivered",
    "deferred": "it raised `RetryAfter(..., attempt=False)` to be called later",
    "rejected": "it raised `Reject`, or the message cannot be decoded",
    "expired": "the message had expired before a handler started",
    "dead": "the last attempt failed, and the message is a dead letter",
    "held": "the last attempt failed, and the message is held and blocks its keys",
}
"""The values of the label outcome."""
