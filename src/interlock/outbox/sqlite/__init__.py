"""The outbox in an SQLite file: what ``interlock.outbox.postgres.database`` is for PostgreSQL."""
