# Made by `make generate` from wire/: change that.
"""The limits of the wire."""

from __future__ import annotations

MAX_KEYS = 4096
"""Keys of one message."""
MAX_KEYS_ON_REDIS = 1024
"""The same on Redis: keys of one message."""
MAX_KEY_BYTES = 1024
"""Bytes of a key; the minimum is one."""
MAX_PAYLOAD = 1_048_576
"""Bytes of a payload, and of a result."""
MAX_BATCH = 1024
"""Messages of one put or one lease, settlements of one call."""
MAX_BATCH_KEYS = 4096
"""Keys of one put or one lease, all its messages together."""
MAX_TEXT = 1024
"""Bytes of a dedup string, of a consumer's name, of the error in an event."""
MAX_LIMITS = 16_384
"""Bytes of the concurrency limits of a queue."""
MAX_LIMIT_NAMES = 8
"""Names of concurrency limits of one message."""
MAX_WEIGHT = 1000
"""Messages of a group's turn."""
MAX_ERROR = 4096
"""Bytes of an error or reason."""
MAX_HISTORY = 16_384
"""Bytes of the errors of all attempts that are stored for a message."""
MAX_NAME = 512
"""Bytes of a queue's name, of a worker's."""
MAX_SPAN = 1_000_000_000_000_000
"""µs, maximum of a duration: 31 years, so that now plus a duration stays below 2⁵³."""
MAX_ROW_TTL = 15_768_000_000_000
"""Ms, maximum time to live of a table's row: 500 years; a word holds 584 of them in
nanoseconds."""
MAX_COUNT = 1_000_000_000
"""Maximum number of attempts, messages, dead letters."""
MAX_NUMBER = 9_007_199_254_740_991
"""Maximum of an id, a token, a call number: Lua cannot represent larger integers."""
MAX_EVENTS = 4096
"""Events that a queue keeps while somebody watches."""
MAX_WATCH = 60_000_000
"""µs for which one call registers a watcher."""
MAX_WORKERS = 10_000
"""Workers announced at a queue."""
MAX_ANNOUNCED = 65_536
"""Bytes of a worker's announcement."""
MAX_ASKED = 4096
"""Bytes of a request to a worker."""
MAX_REQUESTS = 16
"""Requests that wait for one worker; beyond it the oldest is dropped."""
MAX_WALKED = 2000
"""Messages that one call counts behind others."""
LAYOUT = 7
"""Version of the stored layout: see counters.lua, and tests/engine/stored when it changes."""
MAX_CALL = 50_331_648
"""Bytes of payloads, or of results, in one call of a client. With the maximum of keys, dedup
strings and numbers, the call stays below the 64 MiB at which a hub ends a connection."""
