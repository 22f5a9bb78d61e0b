"""The files of the pages: scripts that parse, loaded at once, and data that is never markup."""

from __future__ import annotations

import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from tests.hub.protocol.foreign_builds import LacksError, node
from tests.hub.servers import missing

STATIC = Path(str(files("interlock.dashboard") / "static"))
TIMELINE = Path(str(files("interlock.timeline") / "static"))


def address(module: Path) -> str:
    """Return the path of a file below `static/`, as the dashboard serves it."""
    if module.is_relative_to(TIMELINE):
        return f"timeline/{module.name}"
    return module.relative_to(STATIC).as_posix()


MODULES = sorted([*STATIC.rglob("*.js"), *TIMELINE.glob("*.js")], key=address)


@pytest.fixture(scope="session")
def tool() -> Path:
    try:
        return node()
    except LacksError as error:
        missing(str(error))
        raise


def test_every_script_parses_and_its_unit_tests_pass(tool: Path, tmp_path: Path) -> None:
    # Outside of a page, scripts are modules where a package says so.
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "static").mkdir()
    for one in STATIC.iterdir():
        (tmp_path / "static" / one.name).symlink_to(one)
    (tmp_path / "static" / "timeline").symlink_to(TIMELINE)
    copied = tmp_path / "parts.test.js"
    copied.write_text(Path(__file__).with_name("parts.test.js").read_text())
    flags = ["--preserve-symlinks", "--preserve-symlinks-main", "--experimental-vm-modules"]
    told = subprocess.run([tool, *flags, copied], capture_output=True, cwd=tmp_path)
    assert told.returncode == 0, told.stdout.decode()


def test_all_modules_are_preloaded() -> None:
    page = (STATIC / "index.html").read_text()
    preloaded = re.findall(r'<link rel="modulepreload" href="{{base}}/static/([^"]+)">', page)
    others = {"early.js", "start.js"}
    assert preloaded == [name for one in MODULES if (name := address(one)) not in others]


def test_data_is_never_markup_and_nothing_is_loaded_from_other_sites() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser"
        r"|setAttribute\(\"style\"|https?://(?!www\.w3\.org/2000/svg)"
    )
    for one in [*MODULES, *STATIC.rglob("*.css"), *TIMELINE.glob("*.css"), STATIC / "index.html"]:
        found = forbidden.search(one.read_text())
        assert found is None, (one, found)
    page = (STATIC / "index.html").read_text()
    assert " style=" not in page and "<style" not in page
    assert not re.search(r"<script(?![^>]*src=)", page)


def test_modules_are_small() -> None:
    for one in [*MODULES, *STATIC.rglob("*.css")]:
        assert len(one.read_text().splitlines()) <= 350, one
