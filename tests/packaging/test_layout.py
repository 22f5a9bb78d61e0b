"""Rules of the sources that no linter knows."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path
    for folder in ("src", "crates", "tests", "scripts", "examples", "benchmarks")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyi", ".rs", ".js", ".css", ".lua"}
    and path.is_file()
    # What benchmarks install for the peers is not ours.
    and ".peers" not in path.parts
)
LONGEST = 600


def test_no_file_is_too_long_to_be_read_at_once() -> None:
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    assert len(lines) > 500, "the sources were not found"
    long = {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > LONGEST}
    assert not long


def test_no_module_is_called_by_a_word_that_says_nothing() -> None:
    vague = {"common", "helpers", "misc", "util", "utils"}
    assert not [str(path) for path in SOURCES if path.stem in vague]


def test_the_core_knows_no_python() -> None:
    manifest = (ROOT / "crates" / "interlock-core" / "Cargo.toml").read_text()
    assert not re.search(r"^(pyo3|interlock-python)\b", manifest, re.MULTILINE)


# What stands above the public names in the order of imports, and uses them as any program would.
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
