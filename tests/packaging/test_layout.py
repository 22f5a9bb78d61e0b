"""Rules for the sources that no linter checks."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.packaging.imports import MODULES as PACKAGE
from tests.packaging.imports import cycles, imported, longest_chain

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("src", "crates", "tests", "scripts", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyi", ".rs", ".js", ".css", ".lua"}
    and path.is_file()
    # Packages installed for the benchmarks' peers are not ours.
    and ".peers" not in path.parts
)
LONGEST = 600


def test_no_file_exceeds_the_line_limit() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert len(lines) > 500, "the sources were not found"
    long = {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > LONGEST}
    assert not long


def test_no_module_has_a_meaningless_name() -> None:
    vague = {"common", "helpers", "misc", "util", "utils"}
    assert not [str(path) for path in SOURCES if path.stem in vague]


def test_the_core_crate_does_not_depend_on_python() -> None:
    manifest = (ROOT / "crates" / "interlock-core" / "Cargo.toml").read_text()
    assert not re.search(r"^(pyo3|interlock-python)\b", manifest, re.MULTILINE)


# Modules that may import the public names, like any program.
USERS = {"__main__", "cli", "replay", "testing"}
MODULES = sorted((ROOT / "src" / "interlock").glob("*.py"))


def test_a_module_below_the_public_names_does_not_import_them() -> None:
    submodules = {path.stem for path in MODULES} | {"_core"}
    imports = [
        f"{module.stem}: {name.name}"
        for module in MODULES
        if module.stem not in USERS | {"__init__"}
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "interlock"
        for name in node.names
        if name.name not in submodules
    ]
    assert not imports


# -- Folders ---------------------------------------------------------------------------------------

MOST_FILES = 20
LONGEST_CHAIN = 8
CROWDED = {
    # Six of them are type stubs of the native module.
    "src/interlock": 22,
}
"""Folders with more files, and their limits. Entries may only be removed."""

CYCLES: dict[str, set[str]] = {
    "interlock": {"aio", "consumer", "queue"},
    "interlock.app": {"app", "invocation", "job", "middleware", "place", "process_setup", "task"},
    "interlock.client.faces": {
        *("aio_client", "aio_lease", "aio_queue", "aio_table", "batch", "client", "consumed_batch"),
        *("consumer", "leader", "lease", "lost_messages", "queue", "table"),
    },
    "interlock.client.requests": {
        *("lease_renewal", "lease_state", "queue_admin", "queue_handle", "queue_reports"),
        "result_wait",
    },
    "interlock.dashboard.polling": {"engine_access", "roster", "track", "watcher"},
    "interlock.hub.serve": {"control", "server"},
    "interlock.table": {"table", "views"},
    "interlock.top": {"application", "queue", "queues", "view", "workers"},
    "interlock.worker.message": {"execution", "meter", "source"},
    "interlock.worker.pools": {"loop_pool", "pool", "process_pool", "thread_pool"},
}
"""Modules of a folder that import one another, most of them only for types. Entries may only be
removed."""

CYCLES_OF_FOLDERS = {
    *(f"interlock.client.{name}" for name in ("admin", "faces", "requests", "rows")),
    *(f"interlock.client.{name}" for name in ("connection", "lua", "wire")),
    *(f"interlock.worker.{name}" for name in ("loop", "message", "pools", "reports")),
}
"""Folders that import one another only for types. Entries may only be removed."""


def test_no_folder_has_too_many_files() -> None:
    folders = [
        path.relative_to(ROOT).parent.as_posix()
        for path in (*SOURCES, *(ROOT / "scripts").rglob("*.sh"))
        if path.relative_to(ROOT).parts[0] in ("src", "tests", "examples", "scripts", "benchmarks")
    ]
    over = {
        folder: count
        for folder, count in Counter(folders).items()
        if count > CROWDED.get(folder, MOST_FILES)
    }
    assert not over, "group the files, as CONTRIBUTING.md says"


def folder_of(module: str) -> str:
    path = PACKAGE[module]
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def within(folder: str, types: bool) -> dict[str, set[str]]:
    """Return the imports between the modules of a folder, without its __init__.py."""
    inside = {one for one in PACKAGE if folder_of(one) == folder and one != folder}
    return {one: imported(one, types) & inside for one in inside}


FOLDERS = sorted({folder_of(module) for module in PACKAGE})


def test_chains_of_imports_within_a_folder_are_short() -> None:
    chains = {folder: longest_chain(within(folder, types=False)) for folder in FOLDERS}
    assert not {folder: chain for folder, chain in chains.items() if len(chain) > LONGEST_CHAIN}


def test_modules_of_a_folder_import_one_another_in_no_new_cycle() -> None:
    found = {
        folder: {one.rpartition(".")[2] for group in groups for one in group}
        for folder in FOLDERS
        if (groups := cycles(within(folder, types=True)))
    }
    new = {folder: found[folder] - set(CYCLES.get(folder, set())) for folder in found}
    assert not {folder: names for folder, names in new.items() if names}


@pytest.mark.parametrize("types", [False, True])
def test_folders_import_one_another_in_no_new_cycle(types: bool) -> None:
    graph: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for module in PACKAGE:
        here = folder_of(module)
        for there in map(folder_of, imported(module, types)):
            if not f"{here}.".startswith(f"{there}.") and not f"{there}.".startswith(f"{here}."):
                graph[here].add(there)
    known = CYCLES_OF_FOLDERS if types else set()
    assert not [group for group in cycles(graph) if not set(group) <= known]
