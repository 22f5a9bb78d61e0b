"""``interlock.outbox`` under the name of the database that it is used with most."""

from interlock.outbox import Outbox, RowJob

__all__ = ["Outbox", "RowJob"]
