"""Clauses on a queue as a whole: 11 to 13, 15, 17, 20 and 22; and bad calls."""
