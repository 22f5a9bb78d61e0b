"""Replay of recorded messages: in order per key, as fast as that allows, and checked.

`trace` reads them, `work` is the handler's work, `ways` run them, `measure` runs and measures one
way, `limit` computes the shortest possible time, `report` and `picture` show the results.
"""
