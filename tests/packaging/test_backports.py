"""`.ci/backports`: the CI gets backports from the same host as the machine's other packages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci" / "backports"


def backports(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """Run the script on these files; return those that it has added."""
    (folder / "sources.list.d").mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    subprocess.run([SCRIPT, "bookworm", folder], check=True, timeout=20)
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    return {
        name: path.read_text()
        for name, path in found.items()
        if path.is_file() and name not in files
    }


DEB822 = """\
# A mirror in the house.
Types: deb deb-src
URIs: https://mirror.example/security
Suites: bookworm-security
Components: main

Types: deb-src
URIs: https://sources.example/debian
Suites: bookworm
Components: main

Types: deb
Enabled: no
URIs: https://off.example/debian
Suites: bookworm
Components: main

Types: deb deb-src
URIs: https://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main
 contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc
"""


def test_a_deb822_source_yields_host_and_key(tmp_path: Path) -> None:
    made = backports(tmp_path, {"sources.list.d/debian.sources": DEB822})
    assert made == {
        "sources.list.d/interlock-backports.sources": (
            "Types: deb\nURIs: https://mirror.example/debian\nSigned-By:\n"
            " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n"
            "Suites: bookworm-backports\nComponents: main\n"
        )
    }


@pytest.mark.parametrize("name", ["sources.list", "sources.list.d/house.list"])
def test_a_one_line_source_yields_host_and_options(tmp_path: Path, name: str) -> None:
    text = (
        "# deb http://no.example/debian bookworm main\n"
        "deb-src http://sources.example/debian bookworm main\n"
        "deb http://security.example/debian bookworm-security main\n"
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example:3142/debian bookworm main  # us\n"
    )
    made = backports(tmp_path, {name: text})
    assert made == {
        "sources.list.d/interlock-backports.list": "deb [arch=amd64 signed-by=/k.gpg] "
        "http://mirror.example:3142/debian bookworm-backports main\n"
    }


def test_a_list_of_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    own = "sources.list.d/interlock-backports.list"
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / own).write_text("deb http://old.example/debian bookworm-backports main\n")
    (tmp_path / "sources.list").write_text("deb http://mirror.example/debian bookworm main\n")
    subprocess.run([SCRIPT, "bookworm", tmp_path], check=True, timeout=20)
    assert (tmp_path / own).read_text() == (
        "deb http://mirror.example/debian bookworm-backports main\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "deb http://mirror.example/debian bookworm main\n"
        "deb http://mirror.example/debian bookworm-backports main\n",
    ],
)
def test_backports_that_are_configured_stay(tmp_path: Path, text: str) -> None:
    assert backports(tmp_path, {"sources.list": text}) == {}
    stanza = "Types: deb\nURIs: http://m.example\nSuites: bookworm bookworm-backports\n"
    (tmp_path / "sources.list").write_text("")
    (tmp_path / "sources.list.d" / "debian.sources").write_text(stanza)
    subprocess.run([SCRIPT, "bookworm", tmp_path], check=True, timeout=20)
    assert not list(tmp_path.rglob("interlock*"))


def test_without_a_source_it_fails_and_says_so(tmp_path: Path) -> None:
    ended = subprocess.run(
        [SCRIPT, "bookworm", tmp_path], capture_output=True, text=True, timeout=20, check=False
    )
    assert ended.returncode == 1
    assert "no source of bookworm in" in ended.stderr


def test_no_host_is_written_into_the_ci() -> None:
    for script in ("run", "backports"):
        assert "://" not in (SCRIPT.parent / script).read_text()
