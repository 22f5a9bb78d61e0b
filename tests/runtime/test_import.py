"""Importing the package in odd ways."""

from __future__ import annotations

import subprocess
import sys

import pytest

AGAIN = """
import sys
import interlock
del sys.modules["interlock._core"]
import interlock._core
"""
ELSEWHERE = """
import interlock
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
other = interpreters.create()
text = "import interlock._core"
told = getattr(interpreters, "exec", interpreters.run_string)(other, text)
if told is not None:
    raise ImportError(told.formatted)
"""


@pytest.mark.parametrize("program", [AGAIN, ELSEWHERE], ids=["again", "in another interpreter"])
def test_a_second_import_of_the_extension_is_refused_with_one_line(program: str) -> None:
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "ImportError" in ended.stderr
    assert "panicked" not in ended.stderr and "PanicException" not in ended.stderr
