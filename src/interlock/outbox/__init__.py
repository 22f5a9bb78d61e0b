"""An outbox in a database: calls of tasks that are sent if, and only if, a transaction commits."""

from interlock.outbox.outbox import Outbox, SentRow

__all__ = ["Outbox", "SentRow"]
