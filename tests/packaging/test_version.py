"""The version is in the root Cargo.toml and nowhere else."""

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import interlock

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
MANIFESTS = sorted(ROOT.glob("crates/*/Cargo.toml"))
# Files that may repeat a version: those of cargo, and the changelog.
MAY_REPEAT = {"Cargo.toml", "Cargo.lock", "CHANGELOG.md"}


def test_the_package_has_the_version_of_cargo_toml() -> None:
    assert interlock.__version__ == VERSION
    assert metadata.version("interlock") == VERSION


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda p: p.parent.name)
def test_every_crate_inherits_the_version_of_the_workspace(manifest: Path) -> None:
    assert tomllib.loads(manifest.read_text())["package"]["version"] == {"workspace": True}


def test_pyproject_takes_the_version_from_cargo() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert "version" in project["dynamic"]


def test_no_other_file_repeats_the_version() -> None:
    pattern = re.compile(rf"(version|interlock)\W{{0,6}}{re.escape(VERSION)}\b", re.IGNORECASE)
    files = [*ROOT.glob("*"), *(ROOT / "src").rglob("*"), *(ROOT / "crates").rglob("*")]
    texts = {".md", ".py", ".pyi", ".rs", ".toml"}
    repeated = [
        str(path.relative_to(ROOT))
        for path in files
        if path.suffix in texts and path.name not in MAY_REPEAT and pattern.search(path.read_text())
    ]
    assert not repeated


def test_the_changelog_has_a_section_for_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## (Unreleased |\[?){re.escape(VERSION)}", changelog, re.MULTILINE)


def test_the_command_prints_the_version() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("interlock"), "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split()[-1] == VERSION
