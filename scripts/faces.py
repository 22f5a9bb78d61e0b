"""Writes the blocking face of an engine's client from its asyncio face.

    python scripts/faces.py           writes the blocking modules
    python scripts/faces.py --check   exits with 1 if one is not what it would write

unasync removes `async` and `await` and replaces names. Where the two faces differ, the source has
comments:

    timeout: Seconds | None = None,  # asyncio         a line of the asyncio face alone
    # asyncio: ... # both:                             several of them
    # threads: block: bool = True,                     a line of the blocking face alone
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import unasync  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[1]
CLIENT = Path("src/interlock/client/faces")
FACES = {"aio_queue.py": "queue.py", "aio_lease.py": "lease.py", "aio_table.py": "table.py"}
NAMES = {
    "AsyncRemoteQueue": "RemoteQueue",
    "AsyncRemoteLease": "RemoteLease",
    "AsyncRemoteTable": "RemoteTable",
    "AsyncClient": "Client",
    "consume_async": "consume",
    "aio_client": "client",
    "aio_lease": "lease",
    "aio_table": "table",
}
HEAD = "# Made from {source} by scripts/faces.py: change that, and run `make generate`.\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    check = parser.parse_args().check
    differ = []
    for source, target in FACES.items():
        made = blocking(CLIENT / source)
        place = ROOT / CLIENT / target
        if not place.exists() or place.read_text("utf-8") != made:
            differ.append(str(CLIENT / target))
            if not check:
                place.write_text(made, "utf-8")
    if check and differ:
        print(
            f"not what the asyncio face gives: {', '.join(differ)}; run `make generate`",
            file=sys.stderr,
        )
    return int(check and bool(differ))


def blocking(source: Path) -> str:
    """Return the text of the blocking module for an asyncio one."""
    text = "".join(shared((ROOT / source).read_text("utf-8")))
    text = "".join(map(uncommented, unasynced(text).splitlines(keepends=True)))
    text = text.replace("for asyncio.", "for threads.", 1)
    text = ruff("check", "--fix-only", "--select=F401,I", text=text)
    return ruff("format", text=HEAD.format(source=source.name) + text)


def shared(text: str) -> Iterator[str]:
    """Return a module without the lines for the asyncio face alone."""
    asyncio = False
    for line in text.splitlines(keepends=True):
        mark = line.strip()
        if mark in ("# asyncio:", "# both:"):
            asyncio = mark == "# asyncio:"
        elif mark.startswith("# threads:") or not (asyncio or mark.endswith("  # asyncio")):
            yield line


def uncommented(line: str) -> str:
    """Return a line in its blocking form."""
    before, mark, after = line.partition("# threads:")
    return before + after.removeprefix(" ") if mark and not before.strip() else line


def unasynced(text: str) -> str:
    """Return a module with its asynchronous parts made blocking."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "asyncio" / "face.py"
        source.parent.mkdir()
        source.write_text(text, "utf-8")
        unasync.unasync_files([str(source)], [unasync.Rule("/asyncio/", "/threads/", NAMES)])
        return (Path(folder) / "threads" / "face.py").read_text("utf-8")


def ruff(*command: str, text: str) -> str:
    """Return a module as ruff formats it."""
    name = str(ROOT / CLIENT / "queue.py")
    asked = [sys.executable, "-m", "ruff", *command, "--stdin-filename", name, "-"]
    return subprocess.run(
        asked, input=text, capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


if __name__ == "__main__":
    sys.exit(main())
