"""The state of a hub, for who watches it."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """The state of a hub: what it is doing."""

    STARTING = "starting"
    SERVING = "serving"
    DRAINING = "draining"


class Standing:
    """The state of one hub. Apart from it, so that who looks at it does not hold the hub."""

    def __init__(self) -> None:
        self.state = State.STARTING
