"""scripts/faces.py makes the blocking face of an engine's client from the asyncio one."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("unasync", reason="a tool of `make lint`, not of the tests")

from scripts import faces

SOURCE = '''"""A face, for asyncio."""

import asyncio  # asyncio

# threads: import threading


class AsyncRemoteQueue:
    async def put(
        self,
        # threads: block: bool = True,
        *,
        keys: str = "",
    ) -> None:
        # asyncio:
        await asyncio.sleep(0)
        # threads: threading.Event()
        # both:
        await self._run(keys)
'''
MADE = '''# Made from source.py by scripts/faces.py: change that, and run `make generate`.
"""A face, for threads."""

import threading


class RemoteQueue:
    def put(
        self,
        block: bool = True,
        *,
        keys: str = "",
    ) -> None:
        threading.Event()
        self._run(keys)
'''


def test_lines_for_one_api_are_generated_only_there(tmp_path: Path) -> None:
    source = tmp_path / "source.py"
    source.write_text(SOURCE)
    assert faces.blocking(source) == MADE


def test_the_committed_modules_match_their_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["faces.py", "--check"])
    assert faces.main() == 0, capsys.readouterr().err


def test_a_generated_module_edited_by_hand_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["faces.py", "--check"])
    monkeypatch.setattr(faces, "ROOT", tmp_path)
    for folder in ("aio_queue.py", "aio_lease.py", "aio_table.py"):
        place = tmp_path / faces.CLIENT / folder
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(SOURCE)
    (tmp_path / faces.CLIENT / "queue.py").write_text("# mine\n")
    assert faces.main() == 1
    assert "client/faces/queue.py" in capsys.readouterr().err
