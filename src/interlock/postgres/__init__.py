"""``interlock.outbox`` under the name of the database that it is used with most."""

from interlock.outbox import Outbox, SentRow

__all__ = ["Outbox", "SentRow"]
