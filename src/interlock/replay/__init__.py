"""Recorded messages, run again: in order per key, as fast as that allows, and checked.

`trace` reads them, `work` is what a handler does, `ways` run them, `measure` runs one way and
watches it, `limit` says how fast it could have been, `report` and `picture` show what was found.
"""
