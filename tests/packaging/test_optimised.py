"""`python -OO`: everything works without docstrings and asserts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EVERY_MODULE = """
import importlib, pkgutil, interlock
missing = []
for one in pkgutil.walk_packages(interlock.__path__, "interlock."):
    if one.name.endswith("__main__") or ".contrib" in one.name:
        continue
    try:
        importlib.import_module(one.name)
    except ImportError as error:
        missing.append(str(error.name))
print("all", *(name for name in missing if name.startswith("interlock")))
"""


def optimised(*words: str) -> str:
    command = [sys.executable, "-OO", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_each_api_works_under_python_o() -> None:
    program = Path(__file__).with_name("optimised.py")
    assert optimised(str(program)) == "ran without asserts\n"


@pytest.mark.share(4)
def test_every_module_can_be_imported_under_python_o() -> None:
    assert optimised("-c", EVERY_MODULE) == "all\n"


def test_the_command_prints_help_under_python_o() -> None:
    assert "interlock queue" in optimised("-m", "interlock", "queue", "--help")
