"""The figures of several worker processes as one sum that does not fall when a process restarts."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from interlock.worker.message.meter import Reading

__all__ = ["Gathering"]

Sums = dict[tuple[str, tuple[str, ...]], Any]
"""By name and labels."""


class Gathering:
    """The last reading of each process, and the totals of those that ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: dict[int, Reading] = {}
        self._counters: Sums = {}
        """Totals of the processes that have ended."""
        self._histograms: Sums = {}

    def said(self, place: int, reading: Reading) -> None:
        """Take the counts of the process in this place since its start."""
        with self._lock:
            self._said[place] = reading

    def ended(self, place: int) -> None:
        """Note that the process in this place has ended: its last counts stay in the sum."""
        with self._lock:
            last = self._said.pop(place, None)
            if last is not None:
                _add(self._counters, last.counters)
                _add(self._histograms, last.histograms)

    def sum(self) -> Reading:
        """Return the figures of all processes; gauges only of the live ones."""
        with self._lock:
            counters, histograms = dict(self._counters), dict(self._histograms)
            gauges: Sums = {}
            for reading in self._said.values():
                _add(counters, reading.counters)
                _add(histograms, reading.histograms)
                _add(gauges, reading.gauges)
        return Reading(_listed(counters), _listed(gauges), _listed(histograms))


def _add(sums: Sums, more: Iterable[list[Any]]) -> None:
    for name, labels, value in more:
        key = (name, tuple(labels))
        before = sums.get(key)
        if before is None or name in ALIKE:
            sums[key] = value
        elif isinstance(value, list):
            sums[key] = [old + new for old, new in zip(before, value, strict=True)]
        else:
            sums[key] = before + value


def _listed(sums: Sums) -> list[list[Any]]:
    return [[name, list(labels), value] for (name, labels), value in sums.items()]


ALIKE = frozenset({"info", "tasks_cut"})
"""Gauges with the same value in each process."""
