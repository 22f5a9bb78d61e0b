"""The options that a queue of an engine may be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from interlock.engine.codec import CodecName
from interlock.message import Keys
from interlock.retry import Retry, Seconds


class QueueOptions(TypedDict, total=False):
    """The options that ``Client.queue`` takes by name."""

    maxsize: int
    maxbytes: int
    retry: Retry
    maxdead: int
    dedup_window: Seconds
    durability: Literal["always", "everysec", "none", "server"]
    keys: Callable[[Any], Keys]
    shared: Callable[[Any], Keys]
    lease: Seconds
    slow_wait: Seconds
    warn_depth: int
    warn_lane_depth: int
    codec: CodecName
