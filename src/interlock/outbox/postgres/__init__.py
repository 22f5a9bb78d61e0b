"""The outbox in PostgreSQL: what ``interlock.outbox.sqlite`` is for an SQLite file."""
