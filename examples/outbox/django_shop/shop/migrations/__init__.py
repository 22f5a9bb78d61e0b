"""Migrations of the shop, and of its outbox."""
