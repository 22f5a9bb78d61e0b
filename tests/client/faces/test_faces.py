"""The faces of a remote queue, against each other and against the queue in process."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import interlock

# Members of the in-process queue that an engine lacks; in its place there are close, seal and
# reopen.
IN_PROCESS = {"shutdown", "record", "recording"}


def public(kind: type[Any]) -> Iterator[str]:
    for name in dir(kind):
        if not name.startswith("_") and callable(inspect.getattr_static(kind, name)):
            yield name


def names(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", sorted({*public(interlock.KeyedQueue)} - IN_PROCESS))
def test_a_remote_queue_has_the_methods_of_the_queue_in_process(name: str) -> None:
    there = names(getattr(interlock.RemoteQueue, name))
    here = names(getattr(interlock.KeyedQueue, name))
    if name == "configure":
        # It has keywords alone, and those of a queue in one process are among them.
        assert {*here} <= {*there}
    else:
        assert there[: len(here)] == here


@pytest.mark.parametrize("name", sorted(public(interlock.RemoteQueue)))
def test_the_asyncio_queue_has_the_same_methods_as_coroutines(name: str) -> None:
    sync = getattr(interlock.RemoteQueue, name)
    face = getattr(interlock.AsyncRemoteQueue, name)
    # As asyncio.Queue, it has no `block`: not to wait is put_nowait, get_nowait.
    asked = names(sync) if name == "exchange" else [one for one in names(sync) if one != "block"]
    assert names(face) == asked
    assert inspect.iscoroutinefunction(face) or name == "task_done"


@pytest.mark.parametrize("name", sorted(public(interlock.RemoteLease)))
def test_the_asyncio_lease_has_the_same_methods(name: str) -> None:
    sync = getattr(interlock.RemoteLease, name)
    face = getattr(interlock.AsyncRemoteLease, name)
    assert names(sync) == names(face)
    assert inspect.iscoroutinefunction(face) == (
        name in ("ack", "nack", "reject", "release", "extend")
    )


@pytest.mark.parametrize("name", sorted(public(interlock.Lease)))
def test_a_remote_lease_has_the_methods_of_the_lease_in_process(name: str) -> None:
    remote = names(getattr(interlock.RemoteLease, name))
    local = names(getattr(interlock.Lease, name))
    assert remote[: len(local)] == local
