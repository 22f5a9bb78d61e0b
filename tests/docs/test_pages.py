"""Every snippet of the pages at the root and in docs/ runs, and so does every example."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs.running import ROOT, run, run_python
from tests.docs.snippets import Program, blocks, commands, programs

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"])
# One that is a folder of modules is run as such, and without a user: it has --demo.
FOLDERS = sorted(path.parent for path in ROOT.glob("examples/*/__main__.py"))
EXAMPLES = {path.name: [path] for path in sorted(ROOT.glob("examples/*.py"))} | {
    path.name: [path, "--demo"] for path in FOLDERS
}
EXAMPLES |= {path.parent.name: [path, "--demo"] for path in ROOT.glob("examples/*/run.py")}
PROGRAMS = [pytest.param(program, id=program.name) for page in PAGES for program in programs(page)]
COMMANDS = [
    pytest.param(words, id=f"{page.relative_to(ROOT)}:{line}")
    for page in PAGES
    for line, words in commands(page)
]
# Commands that a page may give and a test does not run: it would install, fetch or build, or is a
# tool of a server that a machine without that server lacks.
NOT_RUN = {
    "apt",
    "cargo",
    "cd",
    "git",
    "pip",
    "python",
    "python3",
    "rabbitmqctl",
    "rustup",
    "sh",
    "xdg-open",
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_snippets_of_a_page_run_and_print_the_documented_output(
    program: Program, tmp_path: Path
) -> None:
    # Not the page's own name: a page called asyncio.md would be imported in asyncio's stead.
    file = tmp_path / f"page_{Path(program.name).stem}.py"
    file.write_text(program.source(), encoding="utf-8")
    printed = program.outputs(run_python(file, tmp_path))
    for block in program.blocks:
        if block.output is not None:
            assert printed[block.line] == block.output, f"{program.name}:{block.line}"


@pytest.mark.parametrize(
    "example",
    [
        pytest.param(name, marks=[pytest.mark.share(2)] if "--demo" in words else [])
        for name, words in EXAMPLES.items()
    ],
)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    run([sys.executable, *EXAMPLES[example]], tmp_path)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_of_a_page_works(words: list[str], tmp_path: Path) -> None:
    name, *arguments = words
    if name == "interlock":
        run([Path(sys.executable).with_name("interlock"), *arguments], tmp_path)
    elif name == "make":
        targets = [word for word in arguments if "=" not in word]
        assert set(targets) <= TARGETS, f"the Makefile has no target {set(targets) - TARGETS}"
    elif name.startswith((".", "scripts/")):
        assert (ROOT / name).exists() or name.startswith(".venv/"), f"{name} does not exist"
    else:
        assert name in NOT_RUN or shutil.which(name), f"{name} is not a known command"


def test_every_output_belongs_to_a_snippet_that_runs() -> None:
    never = [
        f"{page.relative_to(ROOT)}:{block.line}"
        for page in PAGES
        for block in blocks(page)
        if block.output is not None and "not-run" in block.marks
    ]
    assert not never
