"""Trouble with a hub's journal, for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True)
class Trouble:
    """Trouble with a hub's journal, from its figures."""

    state: str
    error: str
    since: int
    """Seconds since 1970; 0 if nothing is wrong."""

    @classmethod
    def of(cls, info: Mapping[str, object]) -> Trouble:
        """Return the trouble that INFO reports."""
        since = info.get("journal_trouble_since")
        return cls(
            str(info.get("journal_state", "none")),
            str(info.get("journal_error", "")),
            since if isinstance(since, int) else 0,
        )

    def __bool__(self) -> bool:
        """Return whether calls are refused because of it."""
        return self.state in REFUSING

    @property
    def ends(self) -> bool:
        """True if it lasts until the hub is restarted."""
        return self.state == FAILED

    def told(self) -> dict[str, object]:
        """Return the trouble as an object of JSON."""
        if not self:
            return {"state": self.state}
        return {"state": self.state, "error": self.error, "since": self._moment()}

    def __str__(self) -> str:
        return f"journal {self.state} since {self._moment()}: {self.error}"

    def _moment(self) -> str:
        return f"{datetime.fromtimestamp(self.since, UTC):%Y-%m-%dT%H:%M:%SZ}"


FAILED = "failed"
REFUSING = ("short", "full", FAILED)
