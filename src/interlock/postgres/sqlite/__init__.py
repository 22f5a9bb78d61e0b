"""The outbox in an SQLite file: what ``interlock.postgres.database`` is for PostgreSQL."""
