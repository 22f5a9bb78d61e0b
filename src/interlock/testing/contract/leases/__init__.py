"""Clauses on leases and failed attempts: 8 to 10, 16, 19 and 23 to 25."""
