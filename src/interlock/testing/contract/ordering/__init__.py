"""Clauses on order, exclusion and choice: 1 to 7, 14 and 21."""
