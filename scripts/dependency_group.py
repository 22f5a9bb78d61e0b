"""Print the requirements of one dependency group of pyproject.toml, one a line.

pip reads groups itself only from 25.1 on, and a new virtual environment holds the pip that its
Python came with; this makes that download unnecessary.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements(group: str) -> list[str]:
    """Return the requirements of `group`, those of the groups it includes first."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    if group not in groups:
        raise SystemExit(
            f"pyproject.toml has no dependency group {group!r}; it has {sorted(groups)}"
        )
    lines: list[str] = []
    for entry in groups[group]:
        if isinstance(entry, str):
            lines.append(entry)
        else:
            lines.extend(requirements(entry["include-group"]))
    return lines


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
