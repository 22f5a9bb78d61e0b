"""The reader of snippets itself: what it must not let pass."""

from pathlib import Path

import pytest

from tests.docs.running import run_python
from tests.docs.snippets import PageError, blocks, commands, programs


def page(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    return path


def execute(tmp_path: Path, text: str) -> str:
    (program,) = programs(page(tmp_path, text))
    file = tmp_path / "page.py"
    file.write_text(program.source(), encoding="utf-8")
    return run_python(file, tmp_path)


def test_snippets_of_a_page_share_a_namespace(tmp_path: Path) -> None:
    assert "42" in execute(
        tmp_path, "# T\n```python\nx = 41\n```\nand\n```python\nprint(x + 1)\n```\n"
    )


def test_a_snippet_alone_does_not_see_the_others(tmp_path: Path) -> None:
    text = "# T\n```python\nx = 1\n```\n```python alone\nx\n```\n"
    shared, alone = programs(page(tmp_path, text))
    assert (len(shared.blocks), alone.name) == (1, "page.md:5")


def test_a_traceback_names_the_line_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="line 6"):
        execute(tmp_path, "# T\n\n\n```python\nx = 1\nraise ValueError\n```\n")


def test_a_snippet_in_a_list_loses_its_indentation(tmp_path: Path) -> None:
    assert "1" in execute(tmp_path, "- item\n  ```python\n  if True:\n      print(1)\n  ```\n")


def test_a_snippet_whose_promised_exception_is_not_raised_fails(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="was to end in KeyError"):
        execute(tmp_path, "# T\n```python raises=KeyError\nx = 1\n```\n")


def test_a_promised_exception_is_no_failure_and_moves_no_line(tmp_path: Path) -> None:
    text = "# T\n```python raises=KeyError\n{}[1]\n```\n```python\nraise ValueError\n```\n"
    with pytest.raises(AssertionError, match=r"line 6(?s:.*)ValueError"):
        execute(tmp_path, text)


def test_the_output_of_each_snippet_is_kept_separate(tmp_path: Path) -> None:
    text = (
        "# T\n```python\nprint('a')\n```\n```text output\na\n```\n"
        "```python\nprint('b')\n```\n```text output\nb\n```\n"
    )
    (program,) = programs(page(tmp_path, text))
    file = tmp_path / "page.py"
    file.write_text(program.source(), encoding="utf-8")
    printed = program.outputs(run_python(file, tmp_path))
    assert printed == {2: "a\n", 8: "b\n"} == {b.line: b.output for b in program.blocks}


def test_a_snippet_that_hangs_is_killed_and_its_stacks_printed(tmp_path: Path) -> None:
    file = tmp_path / "hangs.py"
    file.write_text("import threading\nthreading.Event().wait()\n")
    with pytest.raises(AssertionError, match=r"took over(?s:.*)hangs.py"):
        run_python(file, tmp_path, limit=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python alnoe\nx\n```\n", "unknown mark alnoe"),
        ("```python not-run\nx\n```\n", "say why"),
        ("```text output\nx\n```\n", "output of no snippet"),
        ("```python\nx\n", "not closed"),
    ],
)
def test_an_unknown_mark_is_an_error(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PageError, match=message):
        blocks(page(tmp_path, text))


def test_a_snippet_that_is_not_run_must_still_be_python(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError):
        programs(page(tmp_path, '```python not-run="shows an outline"\ndef\n```\n'))


def test_commands_are_read_after_their_prompt(tmp_path: Path) -> None:
    text = (
        "# T\n```console\n$ make run  # a minute\n10,839 messages\n"
        "$ interlock replay \\\n  x\n```\n"
    )
    assert list(commands(page(tmp_path, text))) == [
        (3, ["make", "run"]),
        (6, ["interlock", "replay", "x"]),
    ]
