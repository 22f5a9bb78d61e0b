"""An environment for each peer, under benchmarks/.peers, with exactly the versions in `pins`.

    python -m benchmarks.workers.environments [NAME ...]

makes those of all peers, or of some.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.interpreters import NotPrepared

HERE = Path(__file__).parent
PINS = HERE / "pins"
FOLDER = HERE.parent / ".peers"
PYTHON = sorted(path.stem for path in PINS.glob("*.txt"))
NODE = sorted(path.name.removesuffix("-lock.json") for path in PINS.glob("*-lock.json"))


def python(name: str) -> Path:
    """Return the interpreter of a peer's environment, which is made where it is not as pinned."""
    folder = FOLDER / name
    program = folder / "bin" / "python"
    pins = PINS / f"{name}.txt"
    stamp = folder / "pins.txt"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        _run(sys.executable, "-m", "venv", "--clear", str(folder))
        _run(str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--no-deps", "--requirement", str(pins))  # fmt: skip
        stamp.write_text(pins.read_text())
    return program


def node_modules(name: str) -> Path:
    """Return the folder of a peer's modules, from the versions in its lock file."""
    if shutil.which("npm") is None:
        raise NotPrepared(f"no npm, which installs {name}")
    folder = FOLDER / name
    lock = PINS / f"{name}-lock.json"
    stamp = folder / "pins.json"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        wanted = json.loads(lock.read_text())["packages"][""]
        (folder / "package.json").write_text(json.dumps(wanted))
        shutil.copy(lock, folder / "package-lock.json")
        # Not `npm ci`: it refuses a lock file that names no optional package of other platforms.
        # `install` too takes the versions of the lock file, and those here are all prebuilt.
        _run("npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund",
             "--prefix", str(folder))  # fmt: skip
        stamp.write_text(lock.read_text())
    return folder / "node_modules"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise NotPrepared(f"{' '.join(command[:4])}: {said[-1]}")


def main(names: list[str]) -> None:
    for name in names or [*PYTHON, *NODE]:
        where = python(name) if name in PYTHON else node_modules(name)
        print(f"{name}: {where}")


if __name__ == "__main__":
    main(sys.argv[1:])
