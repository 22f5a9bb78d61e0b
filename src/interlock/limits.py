# Made by `make generate` from wire/: change that.
"""The limits of the wire."""

from __future__ import annotations

MAX_KEYS = 4096
"""Keys of one message."""
MAX_KEYS_ON_REDIS = 1024
"""The same on Redis: keys of one message."""
MAX_KEY_BYTES = 1024
"""Bytes of a key, which has one at least."""
MAX_PAYLOAD = 1_048_576
"""Bytes of a payload, and of a result."""
MAX_BATCH = 1024
"""Messages of one put or one lease, settlements of one call."""
MAX_BATCH_KEYS = 4096
"""Keys of one put or one lease, all its messages together."""
MAX_TEXT = 1024
"""Bytes of a dedup string, of an error or reason, of a consumer's name."""
MAX_NAME = 512
"""Bytes of a queue's name."""
MAX_SPAN = 1_000_000_000_000_000
"""µs, of a duration: 31 years, so that now and a span together stay below 2⁵³."""
MAX_COUNT = 1_000_000_000
"""Of attempts, messages, dead letters."""
MAX_NUMBER = 9_007_199_254_740_991
"""Of an id, a token, a call: beyond it Lua knows no numbers."""
LAYOUT = 2
"""Of what is stored: see counters.lua, and tests/engine/stored when it changes."""
MAX_CALL = 50_331_648
"""Bytes of payloads, or of results, in one call of a client. With the most keys, dedup strings
and numbers that it can have beside them it stays below the 64 MiB at which a hub ends a
connection."""
