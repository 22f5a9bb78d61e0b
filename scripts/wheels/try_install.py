"""Uses an installed Interlock: its core alone, or its tasks through a hub, too.

scripts/wheels/try_install.py core|tasks ...
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

TRACE = [{"id": n, "keys": [f"k{n % 7}", f"k{n % 3}"]} for n in range(500)]


def core() -> None:
    """Put and get in one process, an executor, the command, a replay; print the installed parts."""
    from interlock import KeyedExecutor, KeyedQueue, __version__

    queue: KeyedQueue[str] = KeyedQueue()
    handled: list[str] = []
    with queue.consume(handled.append, threads=4):
        queue.put("a to b", keys=["a", "b"])
        queue.put("b to c", keys=["b", "c"])
        queue.join()
    assert handled == ["a to b", "b to c"], handled
    with KeyedExecutor(2) as executor:
        assert executor.submit_keyed("key", pow, 2, 5).result() == 32
    assert interlock("--version") == f"interlock {__version__}\n"
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.jsonl")
        trace.write_text("".join(json.dumps(line) + "\n" for line in TRACE))
        report = json.loads(interlock("replay", str(trace), "--work", "hash", "--json"))
    assert report["violations"] == 0, report
    held = {str(path) for path in metadata.files("interlock") or ()}
    for end in ("py.typed", "LICENSE", "THIRD-PARTY-LICENCES.txt", "_interlock"):
        assert any(path.endswith(end) for path in held), f"{end} is not installed"
    print(f"interlock {__version__} works; import interlock takes {import_time():.0f} ms")


def tasks() -> None:
    """Send a task through a hub and handle it, in this process."""
    from interlock import App, Hub

    with Hub(port=0) as hub:
        app = App(f"interlock://127.0.0.1:{hub.port}")

        @app.task(keys="account:{account}", result_ttl=60)
        def double(account: str, cents: int) -> int:
            return 2 * cents

        with app.worker():
            assert double.send("ann", 21).result(timeout=30) == 42
    print("a task through a hub works")


def interlock(*arguments: str) -> str:
    """Return the output of the command that was installed with this Python."""
    program = str(Path(sys.executable).with_name("interlock"))
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def import_time() -> float:
    """Return the time that `import interlock` adds to a start of Python, in ms: the median of 5."""
    program = (
        "import time; begin = time.perf_counter()\n"
        "import interlock; print((time.perf_counter() - begin) * 1e3)"
    )
    command = [sys.executable, "-I", "-c", program]
    return statistics.median(float(subprocess.check_output(command)) for _ in range(5))


USES: dict[str, Callable[[], None]] = {"core": core, "tasks": tasks}

if __name__ == "__main__":
    for name in sys.argv[1:]:
        USES[name]()
