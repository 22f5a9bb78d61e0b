"""The needs of each runner on this machine: the Rust programs, and an interpreter for bocpy."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import interlock

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "target" / "bench"


class NotPrepared(RuntimeError):
    """The reason why a row cannot be taken on this machine."""


@cache
def rust_program() -> Path:
    """Build benchmarks/rust, where something changed, and return its program."""
    return _built("rust", "interlock-bench")


@cache
def load_program() -> Path:
    """Build benchmarks/load, which drives servers, where something changed; return its program."""
    return _built("load", "interlock-load")


@cache
def behaviours_python() -> Path:
    """Return the newest CPython of this machine from 3.12 on, in an environment that has bocpy
    and what Interlock requires.

    Without one it is this interpreter itself: bocpy runs there too, only slower.
    """
    newest = _newest_python()
    if newest is None:
        return Path(sys.executable)
    name = _run(str(newest), "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])").strip()
    environment = BUILT / f"python-{name}"
    python = environment / "bin" / "python"
    stamp = environment / "tools.txt"
    # The package itself is on the path (see `environment`), what it requires is not.
    groups = str(ROOT / "scripts" / "dependency_group.py"), "package", "bench"
    wanted = _run(sys.executable, *groups)
    if not stamp.exists() or stamp.read_text() != wanted:
        _run(str(newest), "-m", "venv", "--clear", str(environment))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             *wanted.split())  # fmt: skip
        stamp.write_text(wanted)
    return python


def environment() -> dict[str, str]:
    """Return the environment of every child.

    It has this checkout's benchmarks and the package that this process uses, whichever interpreter
    runs it.
    """
    paths = [str(Path(interlock.__file__).parents[1]), str(ROOT)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"}


def _built(folder: str, program: str) -> Path:
    manifest = ROOT / "benchmarks" / folder / "Cargo.toml"
    _run("cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", str(manifest),
         "--target-dir", str(BUILT))  # fmt: skip
    return BUILT / "release" / program


def _newest_python() -> Path | None:
    if sys.version_info >= (3, 12):
        return Path(sys.executable)
    found = _run("sh", str(ROOT / "scripts" / "prepare.sh"), "pythons").split()
    script = "import sys; sys.exit(sys.version_info < (3, 12))"
    fit = [path for path in found if subprocess.run([path, "-c", script]).returncode == 0]
    return Path(fit[-1]) if fit else None


def _run(*command: str) -> str:
    """Run a command and return what it printed.

    Raises NotPrepared, with its last line of complaint, if it failed.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except OSError as error:
        raise NotPrepared(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        complaint = next((line for line in said if line.startswith("error")), said[-1])
        raise NotPrepared(f"{Path(command[0]).name} {command[1]}: {complaint}")
    return done.stdout
