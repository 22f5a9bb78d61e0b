"""The state of a hub, for monitoring."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The state of a hub: its current phase."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Standing:
    """The state of one hub. Separate, so that an observer does not keep the hub alive."""

    def __init__(self) -> None:
        self.state = State.STARTING
