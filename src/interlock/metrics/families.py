"""The families of metrics of a worker: each once, with its labels and what it means.

What an exporter and a hub tell of queues is in ``interlock.queue_figures``.
"""

from __future__ import annotations

from interlock.queue_figures import Family

__all__ = ["WORKER_FAMILIES"]

OF_A_TASK = ("queue", "task")

WORKER_FAMILIES: dict[str, Family] = {
    "info": Family(
        "interlock_worker_info", "gauge", "which worker this is; always 1", ("version", "pool")
    ),
    "processes": Family(
        "interlock_worker_processes", "gauge", "worker processes that run, and have answered", ()
    ),
    "ready": Family(
        "interlock_worker_ready", "gauge", "worker processes that the engine has answered", ()
    ),
    "restarts": Family(
        "interlock_worker_restarts_total", "counter",
        "worker processes that ended unasked, and were started again", (),
    ),
    "concurrency": Family(
        "interlock_worker_concurrency", "gauge", "handlers that may run at once", ()
    ),
    "running": Family("interlock_worker_running", "gauge", "handlers that run"),
    "connected": Family(
        "interlock_worker_connected", "gauge",
        "worker processes whose last call for the queue the engine has answered",
    ),
    "handled": Family(
        "interlock_worker_handled_total", "counter",
        "messages that handlers were called for, by what came of them as the worker judged",
        (*OF_A_TASK, "outcome"),
    ),
    "wait": Family(
        "interlock_worker_wait_seconds", "histogram",
        "seconds from the put of a message, or when its delay was over, to its lease; of first "
        "attempts",
        OF_A_TASK,
    ),
    "handling": Family(
        "interlock_worker_handling_seconds", "histogram", "seconds that handlers took", OF_A_TASK
    ),
    "lost": Family(
        "interlock_worker_lost_total", "counter",
        "settlements that came too late: the lease had run out or was revoked", OF_A_TASK,
    ),
    "timeouts": Family(
        "interlock_worker_timeouts_total", "counter",
        "handlers that ran longer than their task may", OF_A_TASK,
    ),
    "released": Family(
        "interlock_worker_released_total", "counter",
        "messages given back before a handler had begun them",
    ),
    "unknown": Family(
        "interlock_worker_unknown_total", "counter",
        "messages of tasks that this worker does not have, kept or given back for another",
    ),
    "renewal_failures": Family(
        "interlock_worker_renewal_failures_total", "counter",
        "renewals of leases that the engine did not answer, or refused", (),
    ),
    "violations": Family(
        "interlock_worker_violations_total", "counter",
        "findings of the auditor; it looks with --audit only", (),
    ),
    "tasks_cut": Family(
        "interlock_worker_tasks_cut", "gauge",
        'tasks without lines of their own: they are summed as task="other"', (),
    ),
}  # fmt: skip
"""By the names that a worker's readings have, in the order in which they are told."""

OUTCOMES = {
    "acked": "the handler returned",
    "retried": "it failed, and the message is redelivered",
    "deferred": "it asked to be called later by `RetryAfter(..., attempt=False)`",
    "rejected": "it raised `Reject`, or the message cannot be read",
    "expired": "the message was too old to be handled",
    "dead": "its last attempt failed",
    "held": "its last attempt failed, and the message keeps its keys closed",
}
"""The values of the label outcome."""
