"""Methods that the naive model leaves to the parts of it that derive from it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.engine.naive.model import Entry, Spec


class Hooks:
    moves = moved_keys = 0
    """Number of messages that the call may still move for clause 31."""

    def need(self, specs: list[Spec]) -> tuple[int, int, int]:
        raise NotImplementedError

    def replaceable(self, spec: Spec) -> Entry | None:
        raise NotImplementedError

    def replace(self, entry: Entry, spec: Spec) -> None:
        raise NotImplementedError

    def entering(self, specs: Iterable[Spec]) -> list[Spec]:
        raise NotImplementedError

    def candidates(self, front: list[Entry]) -> list[Entry]:
        raise NotImplementedError

    def next_one(self, entries: list[Entry], name: str = "") -> Entry | None:
        raise NotImplementedError

    def enter_ring(self, entry: Entry) -> None:
        raise NotImplementedError

    def take_turn(self, entry: Entry, kind: str) -> None:
        raise NotImplementedError

    def admit(self, entry: Entry) -> bool:
        raise NotImplementedError

    def advance(self) -> None:
        raise NotImplementedError

    def charge(self, entry: Entry) -> None:
        raise NotImplementedError

    def opens(self) -> list[float]:
        raise NotImplementedError

    def refuse_stuck(self, specs: Iterable[Spec]) -> None:
        raise NotImplementedError

    def has_dead_room(self) -> bool:
        raise NotImplementedError

    def take_place(self, entry: Entry) -> None:
        raise NotImplementedError

    def become_stuck(self, entry: Entry) -> None:
        raise NotImplementedError

    def begins_to_die(self, entry: Entry, token: int, error: str) -> bool:
        raise NotImplementedError

    def begin_moves(self) -> None:
        raise NotImplementedError

    def has_moves(self) -> bool:
        raise NotImplementedError

    def move(self) -> None:
        raise NotImplementedError

    def ride(self, head: Entry, taken: list[Entry], kind: str) -> bool:
        raise NotImplementedError

    def promote(self, head: Entry) -> None:
        raise NotImplementedError

    def part(self, head: Entry) -> None:
        raise NotImplementedError
