"""The timeline that the dashboard, the replay's page and its static drawing share.

`static/` holds its scripts, which keep the geometry (`layout.js`) apart from the drawing
(`painter.js`), and its style sheets. The dashboard serves them as they are; the replay's page
holds them within itself.
"""

from __future__ import annotations

import re
from pathlib import Path

STATIC = Path(__file__).with_name("static")

STYLES = ("theme.css", "tracks.css")
"""The style sheets, in the order in which a page needs them."""


def theme() -> tuple[dict[str, str], dict[str, str]]:
    """Return the colours of `theme.css` by their names, the light ones and the dark ones."""
    text = (STATIC / "theme.css").read_text(encoding="utf-8")
    found = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\);", text)
    return {name: light for name, light, _ in found}, {name: dark for name, _, dark in found}


def joined(entry: Path) -> str:
    """Return a script and all that it imports as one script, each file once, imports first.

    A path `./timeline/…` is that of a script here. The files share one scope, so no two of them
    may declare the same name.
    """
    parts: dict[Path, str] = {}

    def add(path: Path) -> None:
        if path in parts:
            return
        parts[path] = ""  # Also ends a circle of imports.
        text = path.read_text(encoding="utf-8")
        for name in _IMPORT.findall(text):
            shared = name.startswith("./timeline/")
            add(STATIC / Path(name).name if shared else path.parent / name[2:])
        # Inserted again, behind those that it imports.
        del parts[path]
        parts[path] = _EXPORT.sub("", _IMPORT.sub("", text))

    add(entry)
    return "\n".join(parts.values())


_IMPORT = re.compile(r'^import \{[^}]*\} from "(\./[\w./]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=const |let |function |class )", re.MULTILINE)
