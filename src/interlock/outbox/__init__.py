"""An outbox in a database: calls of tasks that are sent if, and only if, a transaction commits."""

from interlock.outbox.outbox import Outbox
from interlock.outbox.row_job import RowJob

__all__ = ["Outbox", "RowJob"]
