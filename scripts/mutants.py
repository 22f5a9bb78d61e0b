"""Break the code on purpose, one fault at a time, and check that the named test notices.

    make mutants                      every fault of tests/mutants.toml
    make mutants ARGS="barrier token" those whose name contains one of the words
    make mutants ARGS=--list          what there is
    make mutants ARGS=--check         only that each fault can still be made in the code of today
    make mutants ARGS=--write         every fault, and the table into scripts/mutants/RESULT.md

Each fault is made in a copy of the tree under target/mutants, never in the tree itself. A fault is
caught when its test fails, dies or hangs; it survives when the test passes, and then this exits
with 1. Before the faults, every named test must pass on the unbroken copy, or its failure would
prove nothing.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "mutants.toml"
RESULT = ROOT / "scripts" / "mutants" / "RESULT.md"
WORK = ROOT / "target" / "mutants"
TREE = WORK / "tree"
LIMIT_SECONDS = 300.0
# Link-time optimisation would cost a minute per fault and finds nothing more.
QUICK_BUILD = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_DEBUG": "0",
    "CARGO_PROFILE_RELEASE_INCREMENTAL": "true",
}

HUNG = "hung"
# Number of failed tests that are named.
SHOWN_TESTS = 3


class StaleFault(Exception):
    """A fault's text is not in its file exactly once, or the code no longer builds with it."""


@dataclass(frozen=True)
class Fault:
    """One deliberate break: in `file`, the text `find`, which occurs once, becomes `replace`.

    The test that must notice is named by one of four: `cargo`, words for `cargo test`; `shuttle`
    and `loom`, the same of a test under that model checker; `pytest`, words for pytest.
    """

    name: str
    file: str
    find: str
    replace: str
    cargo: str = ""
    shuttle: str = ""
    loom: str = ""
    pytest: str = ""

    def __post_init__(self) -> None:
        if [self.cargo, self.shuttle, self.loom, self.pytest].count("") != 3:
            raise SystemExit(f"tests/mutants.toml: {self.name}: name one test")

    @property
    def runner(self) -> str:
        runners = ("pytest", "cargo", "shuttle", "loom")
        return next(runner for runner in runners if getattr(self, runner))

    @property
    def test(self) -> str:
        return f"{self.runner} {getattr(self, self.runner)}"

    @property
    def cargo_words(self) -> list[str]:
        chosen = self.cargo or f"--test shuttle {self.shuttle}"
        chosen = f"--lib {self.loom}" if self.loom else chosen
        return ["--release", "--locked", "--package", self.package, *chosen.split()]

    @property
    def package(self) -> str:
        """The package whose tests `cargo` runs: the fault's own."""
        crates = "core|engine|hub|journal|log|node|rows|stores|table"
        found = re.match(rf"crates/(interlock-(?:{crates}))/", self.file)
        return found[1] if found else "interlock-core"

    @property
    def environment(self) -> dict[str, str]:
        """Extra environment variables of the build and the test."""
        checker = self.runner if self.runner in ("shuttle", "loom") else ""
        build = WORK / (f"build-{checker}" if checker else "build")
        more = {"CARGO_TARGET_DIR": str(build), "PYTHONPATH": str(TREE / "src")}
        if checker:
            more["RUSTFLAGS"] = f"--cfg {checker}"
        return {**QUICK_BUILD, **more}


@dataclass(frozen=True)
class Verdict:
    """The outcome of one fault: the tests that failed, `HUNG` for one that did not end; or none."""

    fault: Fault
    caught_by: tuple[str, ...]
    seconds: float

    @property
    def survived(self) -> bool:
        return not self.caught_by

    @property
    def summary(self) -> str:
        more = len(self.caught_by) - SHOWN_TESTS
        names = ", ".join(self.caught_by[:SHOWN_TESTS]) + (f" and {more} more" if more > 0 else "")
        return "SURVIVED" if self.survived else names


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Break the code on purpose; a test must notice.")
    parser.add_argument("words", nargs="*", help="only faults whose name contains one of these")
    parser.add_argument("--list", action="store_true", help="name the faults and their tests")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="only see that each can be made")
    options = parser.parse_args(arguments)
    if options.words and options.write:
        parser.error("--write wants all faults, not some")
    faults = [
        fault
        for fault in read(FAULTS)
        if not options.words or any(word in fault.name for word in options.words)
    ]
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.test}")
        return 0
    if not faults:
        raise SystemExit("no fault of tests/mutants.toml has such a name")
    if options.check:
        return check(faults)
    copy_tree()
    for fault in {fault.test: fault for fault in faults}.values():
        print(f"unbroken: {fault.test}", flush=True)
        require_pass(fault)
    verdicts = [judge(fault) for fault in faults]
    survivors = [verdict for verdict in verdicts if verdict.survived]
    print(f"\n{len(verdicts) - len(survivors)} of {len(verdicts)} faults caught")
    for verdict in survivors:
        print(f"SURVIVED: {verdict.fault.name}")
    if options.write:
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(table(verdicts), encoding="utf-8")
    return 1 if survivors else 0


def check(faults: Sequence[Fault]) -> int:
    """Print the faults that no longer fit the code; return 1 if there are some."""
    stale = 0
    for fault in faults:
        try:
            made(fault, ROOT)
        except StaleFault as error:
            print(f"tests/mutants.toml: {error}", file=sys.stderr)
            stale += 1
    print(f"{len(faults) - stale} of {len(faults)} faults can be made")
    return 1 if stale else 0


def made(fault: Fault, tree: Path) -> tuple[str, str]:
    """Return the text of the fault's file without and with the fault. Raises StaleFault."""
    file = tree / fault.file
    sound = file.read_text(encoding="utf-8") if file.is_file() else ""
    times = sound.count(fault.find)
    if times != 1:
        raise StaleFault(f"{fault.name}: {fault.file} holds its text {times} times")
    return sound, sound.replace(fault.find, fault.replace)


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the result as a page: date, commit, and a row for each fault."""
    commit = output("git", "rev-parse", "--short", "HEAD")
    dirty = " with changes" if output("git", "status", "--porcelain", "crates", "src") else ""
    caught = sum(not verdict.survived for verdict in verdicts)
    lines = [
        "# Deliberate faults, and the tests that catch them",
        "",
        f"{caught} of {len(verdicts)} faults caught by `make mutants ARGS=--write`,",
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {commit}{dirty},",
        f"{output('rustc', '--version')}. The seconds include the build of the broken code.",
        "",
        "| fault | caught by | seconds |",
        "|---|---|---|",
    ]
    for verdict in verdicts:
        test = f"{verdict.fault.runner}: {verdict.summary}"
        lines.append(f"| {verdict.fault.name} | {test} | {verdict.seconds:.0f} |")
    return "\n".join(lines) + "\n"


def output(*command: str) -> str:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def read(path: Path) -> list[Fault]:
    faults = [Fault(**entry) for entry in tomllib.loads(path.read_text())["fault"]]
    names = [fault.name for fault in faults]
    if len(set(names)) < len(names):
        raise SystemExit(f"{path}: two faults have one name")
    return faults


def copy_tree() -> None:
    """Update the copy to the files that git would commit.

    An unchanged file is left alone, and a changed one gets the present time: cargo compiles by
    time, and must neither compile everything nor reuse the build of an old fault.
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


def judge(fault: Fault) -> Verdict:
    """Make the fault, run its test, undo the fault; return the outcome and the duration."""
    file = TREE / fault.file
    sound, broken = made(fault, TREE)
    start = time.monotonic()
    file.write_text(broken, encoding="utf-8")
    try:
        build(fault)
        caught_by = failed_tests(run_test(fault))
    except subprocess.TimeoutExpired:
        caught_by = (HUNG,)
    finally:
        file.write_text(sound, encoding="utf-8")
    verdict = Verdict(fault, caught_by, time.monotonic() - start)
    print(f"{fault.name}: {verdict.summary} ({verdict.seconds:.0f} s)", flush=True)
    return verdict


def failed_tests(done: subprocess.CompletedProcess[str]) -> tuple[str, ...]:
    """Return the names of the tests that failed.

    A run that failed without naming a test has died, and the text gives the reason.
    """
    if done.returncode == 0:
        return ()
    pattern = r"^(?:test (\S+) \.\.\. FAILED|FAILED (\S+))"
    found = re.findall(pattern, done.stdout, re.MULTILINE)
    return tuple(one or other for one, other in found) or (f"died with {done.returncode}",)


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
    done = run(command, fault, limit=None)
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


def run(
    command: Sequence[str], fault: Fault, limit: float | None = LIMIT_SECONDS
) -> subprocess.CompletedProcess[str]:
    """Run to the end or to the limit; then end its child processes too, or they hold our pipes."""
    process = subprocess.Popen(
        command,
        cwd=TREE,
        env={**os.environ, **fault.environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=limit)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except StaleFault as error:
        sys.exit(f"tests/mutants.toml: {error}")
