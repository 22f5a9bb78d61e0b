"""Every link from page to page, file or heading leads somewhere."""

import re
from pathlib import Path

from tests.docs.running import ROOT
from tests.docs.test_pages import PAGES

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
IMAGE = re.compile(r"(?:src|href)=\"([^\"]+)\"")
FENCED = re.compile(r"^ *(`{3,}|~{3,}).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`[^`\n]+`")
NAMED = re.compile(r"(?:`(\w+)` and )?`(\w+)` in \[[^\]]*\]\(([^)#]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def test_every_link_of_a_page_has_a_target() -> None:
    assert PAGES
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in links(page)
        if not leads(page, link)
    ]
    assert not dead


def test_names_that_a_page_places_in_a_file_are_defined_there() -> None:
    named = [(page, *found) for page in PAGES for found in NAMED.findall(page.read_text("utf-8"))]
    assert named
    missing = [
        f"{page.relative_to(ROOT)}: {name} in {file}"
        for page, *names, file in named
        for name in filter(None, names)
        if not defines((page.parent / file).read_text(encoding="utf-8"), name)
    ]
    assert not missing


def test_the_list_of_examples_names_every_example() -> None:
    folder = ROOT / "examples"
    named = {link.partition("/")[0] for link in links(folder / "README.md")}
    files = {path.name for path in folder.glob("*.py")}
    folders = {path.parent.relative_to(folder).parts[0] for path in folder.glob("*/**/*.*")}
    assert files | {name for name in folders if not name.startswith("_")} <= named


def defines(source: str, name: str) -> bool:
    """True if a function, a class, a value or a field of this name is made in a file."""
    made = r"(?:\bfn |\bdef |\bclass |\bstruct |\bfunction (?:\w+\.)?)" + name + r"\b"
    return re.search(rf"{made}|^\s*{name}(?:: [^=\n]+)? = ", source, re.MULTILINE) is not None


def links(page: Path) -> list[str]:
    text = INLINE.sub("", FENCED.sub("", page.read_text(encoding="utf-8")))
    return [*LINK.findall(text), *IMAGE.findall(text)]


def leads(page: Path, link: str) -> bool:
    if re.match(r"[a-z][a-z0-9+.-]*:", link):
        # Another host's page: no test of ours depends on it.
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target)


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives the headings of a page."""
    names: set[str] = set()
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    for heading in HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = 0
        while (f"{name}-{count}" if count else name) in names:
            count += 1
        names.add(f"{name}-{count}" if count else name)
    return names
