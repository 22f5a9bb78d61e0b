"""Print the requirements of dependency groups of pyproject.toml, one a line.

`package` is not a group: it stands for what the package itself requires.

pip reads groups itself only from 25.1 on, and a new virtual environment holds the pip that its
Python came with; this makes that download unnecessary.
"""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def requirements(group: str) -> list[str]:
    """Return the requirements of `group`, those of the groups it includes first."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    if group == "package":
        return list(declared["project"]["dependencies"])
    groups = declared["dependency-groups"]
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
    print("\n".join(line for group in sys.argv[1:] for line in requirements(group)))
