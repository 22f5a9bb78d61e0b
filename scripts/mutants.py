"""Break the code on purpose, one fault at a time, and see that the named test notices.

    make mutants                      every fault of tests/mutants.toml
    make mutants ARGS="barrier token" those whose name contains one of the words
    make mutants ARGS=--list          what there is

Each fault is made in a copy of the tree under target/mutants, never in the tree itself. A fault is
caught when its test fails, dies or hangs; it survives when the test passes, and then this exits
with 1. Before the faults, every named test must pass on the unbroken copy, or its failing would
prove nothing.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "mutants"
TREE = WORK / "tree"
LIMIT_SECONDS = 300.0
# Link-time optimisation would cost a minute a fault and finds nothing more.
QUICK_BUILD = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_DEBUG": "0",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
}

Verdict = Literal["caught", "caught, it hung", "SURVIVED"]


class StaleFault(Exception):
    """A fault's text is not in its file exactly once, or the code no longer builds with it."""


@dataclass(frozen=True)
class Fault:
    """One deliberate break: in `file`, the text `find`, there once, becomes `replace`.

    The test that must notice is named by one of three: `cargo`, words for `cargo test`; `shuttle`,
    the same of a test that runs under the model checker; `pytest`, words for pytest.
    """

    name: str
    file: str
    find: str
    replace: str
    cargo: str = ""
    shuttle: str = ""
    pytest: str = ""

    def __post_init__(self) -> None:
        if [self.cargo, self.shuttle, self.pytest].count("") != 2:
            raise SystemExit(f"tests/mutants.toml: {self.name}: name one test")

    @property
    def test(self) -> str:
        if self.pytest:
            return f"pytest {self.pytest}"
        return f"cargo test {self.cargo}" if self.cargo else f"shuttle {self.shuttle}"

    @property
    def cargo_words(self) -> list[str]:
        chosen = self.cargo or f"--test shuttle {self.shuttle}"
        return ["--release", "--locked", "--package", "interlock-core", *chosen.split()]

    @property
    def environment(self) -> dict[str, str]:
        """What the build and the test run with, beside what this process has."""
        build = WORK / ("build-shuttle" if self.shuttle else "build")
        more = {"CARGO_TARGET_DIR": str(build), "PYTHONPATH": str(TREE / "src")}
        if self.shuttle:
            more["RUSTFLAGS"] = "--cfg shuttle"
        return {**QUICK_BUILD, **more}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Break the code on purpose; a test must notice.")
    parser.add_argument("words", nargs="*", help="only faults whose name contains one of these")
    parser.add_argument("--list", action="store_true", help="name the faults and their tests")
    options = parser.parse_args(arguments)
    faults = [
        fault
        for fault in read(ROOT / "tests" / "mutants.toml")
        if not options.words or any(word in fault.name for word in options.words)
    ]
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.test}")
        return 0
    if not faults:
        raise SystemExit("no fault of tests/mutants.toml has such a name")
    copy_tree()
    for fault in {fault.test: fault for fault in faults}.values():
        print(f"unbroken: {fault.test}", flush=True)
        require_pass(fault)
    results = [(fault, *judge(fault)) for fault in faults]
    survivors = [fault.name for fault, verdict, _ in results if verdict == "SURVIVED"]
    print(f"\n{len(results) - len(survivors)} of {len(results)} faults caught")
    for name in survivors:
        print(f"SURVIVED: {name}")
    return 1 if survivors else 0


def read(path: Path) -> list[Fault]:
    faults = [Fault(**entry) for entry in tomllib.loads(path.read_text())["fault"]]
    names = [fault.name for fault in faults]
    if len(set(names)) < len(names):
        raise SystemExit(f"{path}: two faults have one name")
    return faults


def copy_tree() -> None:
    """Bring the copy to what git would commit.

    A file that is the same already is left alone, and a changed one gets the present time:
    cargo compiles by time, and must neither compile everything nor take an old fault for sound.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = {name for name in listed.stdout.decode().split("\0") if (ROOT / name).is_file()}
    for old in [path for path in TREE.rglob("*") if path.is_file()]:
        if old.relative_to(TREE).as_posix() not in names:
            old.unlink()
    for name in names:
        target = TREE / name
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)


def judge(fault: Fault) -> tuple[Verdict, float]:
    """Make the fault, run its test, undo the fault; say what happened and how long it took."""
    file = TREE / fault.file
    sound = file.read_text(encoding="utf-8")
    if sound.count(fault.find) != 1:
        raise StaleFault(
            f"{fault.name}: {fault.file} holds its text {sound.count(fault.find)} times"
        )
    start = time.monotonic()
    file.write_text(sound.replace(fault.find, fault.replace), encoding="utf-8")
    try:
        build(fault)
        verdict: Verdict = "SURVIVED" if run_test(fault).returncode == 0 else "caught"
    except subprocess.TimeoutExpired:
        verdict = "caught, it hung"
    finally:
        file.write_text(sound, encoding="utf-8")
    seconds = time.monotonic() - start
    print(f"{verdict}: {fault.name} ({fault.test}, {seconds:.0f} s)", flush=True)
    return verdict, seconds


def require_pass(fault: Fault) -> None:
    build(fault)
    done = run_test(fault)
    if done.returncode != 0:
        raise SystemExit(f"{fault.test} fails on the unbroken code:\n{done.stdout}\n{done.stderr}")
    if not fault.pytest and not re.search(r"^running [1-9]", done.stdout, re.MULTILINE):
        raise SystemExit(f"{fault.test} runs no test at all")


def build(fault: Fault) -> None:
    """Compile what the test needs. Raises StaleFault if it does not compile."""
    if fault.pytest:
        command = ["cargo", "build", "--release", "--locked", "--package", "interlock-python"]
        command += ["--features", "pyo3/extension-module"]
    else:
        command = ["cargo", "test", "--no-run", *fault.cargo_words]
    done = run(command, fault)
    if done.returncode != 0:
        raise StaleFault(f"{fault.name}: the code does not compile:\n{done.stderr}")
    if fault.pytest:
        suffix = "dylib" if sys.platform == "darwin" else "so"
        native = WORK / "build" / "release" / f"lib_core.{suffix}"
        shutil.copy2(native, TREE / "src" / "interlock" / "_core.abi3.so")


def run_test(fault: Fault) -> subprocess.CompletedProcess[str]:
    if fault.pytest:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        return run([*command, *shlex.split(fault.pytest)], fault)
    return run(["cargo", "test", *fault.cargo_words], fault)


def run(command: Sequence[str], fault: Fault) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=TREE,
        env={**os.environ, **fault.environment},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except StaleFault as error:
        sys.exit(f"tests/mutants.toml: {error}")
