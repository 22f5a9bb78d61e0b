"""A hub's wall clock that a test sets, by a library that replaces the system's."""

from __future__ import annotations

import datetime as dt
import os
import time
from pathlib import Path

from tests.hub.servers import missing

LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class SetClock:
    """A clock that is set like a machine's: elapsed time continues as before."""

    def __init__(self, folder: Path) -> None:
        if not LIBRARIES:
            missing("no libfaketime: install the package faketime")
        self.file = folder / "clock"
        self.ahead = 0.0
        self.environment = {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "TZ": "UTC",
        }
        self.set(0)

    def set(self, ahead: float) -> None:
        """Set it this many seconds ahead of this machine's clock."""
        self.ahead = ahead
        following = self.file.with_suffix(".next")
        following.write_text(f"{ahead:+.3f}\n")
        os.replace(following, self.file)

    def set_to(self, moment: str) -> None:
        """Set it to a moment, UTC."""
        self.set(dt.datetime.fromisoformat(f"{moment}+00:00").timestamp() - time.time())
