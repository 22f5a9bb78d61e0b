"""The stack of another thread is looked up without a garbage collection in between."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

from interlock.runtime.frames import frame_of


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """List, for each look-up of the frames, whether garbage was collected by itself meanwhile."""
    seen: list[bool] = []
    frames = sys._current_frames

    def looked() -> dict[int, FrameType]:
        seen.append(gc.isenabled())
        return frames()

    monkeypatch.setattr(sys, "_current_frames", looked)
    yield seen
    gc.enable()


@pytest.mark.parametrize("collects", [True, False])
def test_looking_up_a_frame_collects_no_garbage_and_restores_the_collector(
    collections: list[bool], collects: bool
) -> None:
    if not collects:
        gc.disable()
    assert frame_of(threading.get_ident()) is not None
    assert collections == [False]
    assert gc.isenabled() is collects


def test_two_concurrent_lookups_restore_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, go_on = threading.Event(), threading.Event()
    frames = sys._current_frames

    def slow() -> dict[int, FrameType]:
        inside.set()
        assert go_on.wait(30)
        return frames()

    monkeypatch.setattr(sys, "_current_frames", slow)
    first = threading.Thread(target=frame_of, args=(0,))
    first.start()
    assert inside.wait(30)
    second = threading.Thread(target=frame_of, args=(0,))
    second.start()
    go_on.set()
    first.join()
    second.join()
    assert gc.isenabled()


def test_an_unknown_thread_number_has_no_frame() -> None:
    assert frame_of(None) is None
    assert frame_of(-1) is None
