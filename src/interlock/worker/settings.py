"""The settings of a worker."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Recording", "WorkerSettings"]


@dataclass(frozen=True, slots=True)
class Recording:
    """The settings of a recording. Raises ValueError where they are not allowed."""

    file: str
    limit: int = 100 * 2**20
    """Size of the file in bytes, including other workers' lines, beyond which nothing is
    recorded."""
    sample: float = 1.0
    """Share of the keys whose messages are recorded."""
    payloads: bool = False
    """True if arguments are recorded too."""

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            raise ValueError(f"record: sample is {self.sample}; allowed: above 0, to 1")
        if self.limit < 1:
            raise ValueError(f"record: limit is {self.limit}; allowed: 1 byte or more")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a worker. Raises TypeError and ValueError where they are not allowed."""

    queues: tuple[str, ...] = ("default",)
    concurrency: int = 16
    pool: str = "thread"
    audit: bool = False
    unkeyed: int = 0
    """Number of handlers that take only messages without keys."""
    lease: float = 30.0
    """Seconds after which the leases of a killed worker expire."""
    record: Recording | None = None
    """Recording of the handled messages."""
    reference: str = ""
    """Place where the processes of a pool find the app, as ``module:name``."""

    def __post_init__(self) -> None:
        if not self.queues or not all(isinstance(name, str) and name for name in self.queues):
            raise ValueError(f"worker(): queues is {self.queues!r}; allowed: one or more names")
        if len(set(self.queues)) < len(self.queues):
            raise ValueError(f"worker(): queues names one twice: {', '.join(self.queues)}")
        if not isinstance(self.concurrency, int) or isinstance(self.concurrency, bool):
            kind = type(self.concurrency).__name__
            raise TypeError(f"worker(): threads is {kind}; allowed: int")
        if not 1 <= self.concurrency <= MOST_HANDLERS:
            raise ValueError(
                f"worker(): threads is {self.concurrency}; allowed: 1 to {MOST_HANDLERS}"
            )
        if not isinstance(self.unkeyed, int) or isinstance(self.unkeyed, bool):
            raise TypeError(f"worker(): unkeyed is {type(self.unkeyed).__name__}; allowed: int")
        if not 0 <= self.unkeyed < self.concurrency:
            raise ValueError(
                f"worker(): unkeyed is {self.unkeyed} of {self.concurrency} handlers; allowed: 0 "
                f"to {self.concurrency - 1}, because messages with keys need one too"
            )
        if self.pool not in POOLS:
            raise ValueError(f"worker(): pool is {self.pool!r}; allowed: {', '.join(POOLS)}")


POOLS = ("thread", "asyncio", "process")
MOST_HANDLERS = 10_000
