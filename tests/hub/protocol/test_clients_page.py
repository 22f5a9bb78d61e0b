"""The snippets of docs/howto/hub-clients.md in other languages run, and receive what they say."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path

import pytest

import interlock
from tests.docs.running import ROOT
from tests.docs.snippets import Block, fenced
from tests.hub.protocol.foreign import LIBRARIES, java
from tests.hub.protocol.foreign_builds import (
    OWN,
    SPOKEN,
    folder_of,
    go,
    go_build,
    java_compile,
    javac,
    node,
)

pytestmark = pytest.mark.watchdog(300)

PAGE = ROOT / "docs" / "howto" / "hub-clients.md"
LANGUAGES = {"js": "node", "go": "go", "java": "java"}
SNIPPETS = [block for block in fenced(PAGE) if LANGUAGES.get(block.language) in SPOKEN]
LIMIT_SECONDS = 20.0
# The code around such lines in a reader's program.
GO = 'package main\n\nimport (\n"context"\n"fmt"\n"github.com/redis/go-redis/v9"\n)\n\n'
JAVA = "".join(
    f"import {name};\n"
    for name in ("redis.clients.jedis.*", "io.lettuce.core.*", "io.lettuce.core.pubsub.*")
)


def prepared(block: Block, code: str, builds: dict[str, Future[Path]]) -> list[Path | str]:
    """The command of a program made of a snippet."""
    folder = folder_of(LANGUAGES[block.language], builds)
    if block.language == "js":
        script = folder / f"page-{OWN}.mjs"
        script.write_text(code)
        return [node(), script]
    page = folder / f"page-{OWN}"
    shutil.rmtree(page, ignore_errors=True)
    page.mkdir()
    if block.language == "go":
        (page / "page.go").write_text(f"{GO}func main() {{\n{code}\n}}\n")
        go_build(go(), folder, f"./{page.name}", f"{page.name}/program")
        return [page / "program"]
    package = "redis.clients.jedis" if "Jedis" in code else "io.lettuce.core"
    # Both have a class of this name.
    imports = f"{JAVA}import {package}.RedisClient;\n"
    main = f"public static void main(String[] arguments) throws Exception {{\n{code}\n}}"
    (page / "Page.java").write_text(f"{imports}class Page {{\n{main}\n}}\n")
    java_compile(javac(), folder, [page / "Page.java"], page.name)
    return java(folder, page.name, "Page")


@pytest.mark.parametrize("block", SNIPPETS, ids=lambda block: f"{block.language}-{block.line}")
def test_a_snippet_receives_what_it_publishes(
    block: Block, builds: dict[str, Future[Path]], hub: interlock.Hub
) -> None:
    code = "\n".join(block.code)
    assert "6399" in code
    words = prepared(block, code.replace("6399", str(hub.port)), builds)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    # It runs until it is ended, so a line that does not come must end it.
    timer = threading.Timer(LIMIT_SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout.readline() == "orders.new 7 teapots\n"
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def test_the_page_names_every_library_and_the_version_that_is_built() -> None:
    text = PAGE.read_text()
    for library in LIBRARIES:
        tested = re.search(rf"^\| \[{library.name}\].*? \| ([\d.]+) \|", text, re.MULTILINE)
        assert tested is not None, library.name
        assert re.search(rf"(?<![\d.]){re.escape(tested[1])}(?!\d)", library.pins())
