"""Queues as each release stored them on a Redis, and what they are to answer.

    python -m tests.engine.stored NUMBER

writes layout-NUMBER.jsonl with the library as it is: done once, before the layout changes. A file
is kept for ever, for somebody has such queues.
"""
