"""The options that a queue of an engine may be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.client.wire.codec import CodecName
from interlock.client.wire.functions import DeclaredOptions
from interlock.message import Keys
from interlock.retry import Seconds


class QueueOptions(DeclaredOptions, total=False):
    """The options that ``Client.queue`` takes by name."""

    keys: Callable[[Any], Keys]
    shared: Callable[[Any], Keys]
    lease: Seconds
    linger: Seconds
    slow_wait: Seconds
    warn_depth: int
    warn_lane_depth: int
    codec: CodecName
