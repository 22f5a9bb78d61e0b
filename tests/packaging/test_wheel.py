"""The wheel has everything needed and nothing else; one file fits every Python from 3.11 on."""

import email
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts.third_party import compiled

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "interlock"

pytestmark = pytest.mark.watchdog(300)  # the fixture may compile


def test_one_wheel_serves_every_python_from_3_11(wheel_path: Path) -> None:
    assert "-cp311-abi3-" in wheel_path.name


def test_the_wheel_holds_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    sources = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith("_core.")
    }
    assert {"interlock/py.typed", "interlock/_core.pyi"} <= set(wheel.namelist())
    assert sources <= set(wheel.namelist())


def test_the_wheel_holds_one_native_module(wheel: zipfile.ZipFile) -> None:
    native = [name for name in wheel.namelist() if name.endswith((".so", ".pyd"))]
    assert native == ["interlock/_core.abi3.so"]


def test_the_wheel_holds_nothing_else(wheel: zipfile.ZipFile) -> None:
    others = [
        name
        for name in wheel.namelist()
        if not re.match(r"interlock/|interlock-[^/]+\.(dist-info|data/data/share)/", name)
    ]
    assert not others
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_the_wheel_has_complete_metadata(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(wheel.read(name))
    assert metadata["Name"] == "interlock"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert [line for line in wheel.namelist() if line.endswith("licenses/LICENSE")]
    assert metadata.get_payload(), "the README is the long description"
    needed = [line for line in metadata.get_all("Requires-Dist", []) if "extra" not in line]
    assert {line.partition(">")[0] for line in needed} == {"cronsim", "msgspec", "redis"}


def test_the_wheel_holds_the_licences_of_the_crates_in_it(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith("THIRD-PARTY-LICENCES.txt")]
    text = wheel.read(name).decode()
    crates = {f"{component['name']} {component['version']}" for component in components(wheel)}
    for crate in compiled():
        assert f"\n{crate['name']} {crate['version']}: " in text
        assert f"{crate['name']} {crate['version']}" in crates, "the bill of materials has it too"


def test_the_wheel_holds_the_completion_files_of_the_shells(wheel: zipfile.ZipFile) -> None:
    files = [path for path in (ROOT / "packaging").rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"interlock", "_interlock", "interlock.fish"}
    for path in files:
        end = path.relative_to(ROOT / "packaging").as_posix()
        (name,) = [name for name in wheel.namelist() if name.endswith(f".data/{end}")]
        assert wheel.read(name) == path.read_bytes()


def components(wheel: zipfile.ZipFile) -> list[dict[str, str]]:
    """Return the components in the bill of materials, which is CycloneDX in JSON."""
    (name,) = [name for name in wheel.namelist() if ".dist-info/sboms/" in name]
    bill = json.loads(wheel.read(name))
    assert bill["bomFormat"] == "CycloneDX"
    found: list[dict[str, str]] = bill["components"]
    return found


def test_the_installed_wheel_works_without_the_sources(wheel_path: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel_path) as opened:
        opened.extractall(site)
    program = (
        "import interlock\n"
        "queue = interlock.KeyedQueue()\n"
        "queue.put('order', keys='account:7')\n"
        "with queue.get() as payload:\n"
        "    assert payload == 'order'\n"
        "print(interlock.__file__)\n"
    )
    # -I: no path comes from the folder or the environment, so only the wheel is importable.
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(site)!r})\n"]
    command[-1] += program
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(site))
