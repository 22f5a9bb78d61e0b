"""Settings of the site that `make docs-site` builds from docs/ and a few more pages."""

import re
import tomllib
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
BESIDE = ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "benchmarks/README", "benchmarks/FIGURES")

project = "Interlock"
release = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
root_doc = "docs/README"
include_patterns = ["docs/**", *(f"{page}.md" for page in BESIDE)]
exclude_patterns = ["scripts", "target", ".*", "crates", "src", "tests", "benchmarks/*/**"]
extensions = ["myst_parser"]
# Links to headings, by their names on GitHub too.
myst_heading_anchors = 4
# SQL with $1 in it.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = f"Interlock {release}"
html_extra_path = ["index.html"]
html_copy_source = False


def keep_links_within(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make a page that is not on the site a download, and the name of a folder plain text."""
    folder = (ROOT / docname).parent

    def replaced(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        if target.is_dir():
            return link[1]
        page = target.relative_to(ROOT).with_suffix("").as_posix()
        on_site = page in BESIDE or page.startswith("docs/")
        return link[0] if on_site else f"{{download}}`{link[1].strip('`')} <{link[2]}>`"

    source[0] = re.sub(
        r"\[([^\[\]]+)\]\(((?:\.\./|\w)[^:#()\s]*(?:\.md|/[\w-]+))\)", replaced, source[0]
    )


def add_navigation(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the lists of the front page into the navigation, each under its heading."""
    if docname != root_doc:
        return
    parts = re.split(r"^## ([\w-]+).*$", source[0], flags=re.MULTILINE)[1:]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        pages = re.findall(r"^(?:-|\d+\.) \[.*?\]\((.+?)\.md\)", body, re.MULTILINE)
        source[0] += toctree(title, pages)
    source[0] += toctree("Project", ["glossary", *(f"/{page}" for page in BESIDE)])


def toctree(caption: str, pages: list[str]) -> str:
    """Return a part of the navigation, which the page itself does not show."""
    lines = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


def setup(app: Sphinx) -> None:
    """Connect to Sphinx."""
    app.connect("source-read", keep_links_within)
    app.connect("source-read", add_navigation)
