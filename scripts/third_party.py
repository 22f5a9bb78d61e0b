"""Writes the licences of the crates that are compiled into the wheel, or checks the file.

    scripts/third_party.py [--check]

The texts are those of the crates' own packages, where cargo has unpacked them. A text that several
crates share appears once.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.check_licences import ROOT, cargo_metadata

OUT = ROOT / "THIRD-PARTY-LICENCES.txt"
TARGETS = (
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-apple-darwin",
)
"""Platforms of the wheels; crates that differ by processor alone are in one of each."""
NAMES = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "COPYRIGHT*", "UNLICENSE*")
HEAD = """\
The native module of Interlock is compiled from these crates as well, each under its own licence.
Written by scripts/third_party.py from the lock file.
"""


def compiled() -> list[dict[str, Any]]:
    """Return the third-party packages that the native module holds on any platform, in order.

    Dependencies of the build or of tests only are left out, and so are macros.
    """
    names: set[str] = set()
    for target in TARGETS:
        command = ["cargo", "tree", "--locked", "--package", "interlock-python", "--prefix", "none"]
        command += ["--edges", "normal,no-proc-macro", "--target", target]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr}")
        names.update(line.partition(" (")[0] for line in done.stdout.splitlines())
    packages = [package for package in cargo_metadata()["packages"] if package["source"]]
    held = [one for one in packages if f"{one['name']} v{one['version']}" in names]
    return sorted(held, key=lambda package: (package["name"], package["version"]))


def texts(package: dict[str, Any]) -> Iterator[str]:
    """Yield the licence files of a package, without duplicates in all but line ends and margins."""
    folder = Path(package["manifest_path"]).parent
    # A set: a file system may not distinguish LICENSE from LICENCE by case.
    for path in sorted({path for name in NAMES for path in folder.glob(name) if path.is_file()}):
        lines = path.read_text(encoding="utf-8").strip("\n\r ").splitlines()
        yield "\n".join(line.rstrip() for line in lines)


def document(packages: list[dict[str, Any]]) -> str:
    """Return the whole text: the crates with their licences, then each licence once."""
    users: dict[str, list[str]] = defaultdict(list)
    parts = [HEAD]
    for package in packages:
        crate = f"{package['name']} {package['version']}"
        found = list(texts(package))
        for text in found:
            users[text].append(crate)
        where = "" if found else ", whose package holds no text of it"
        parts.append(f"{crate}: {package['license']}{where}; {package['repository'] or 'no URL'}\n")
    for text, crates in users.items():
        parts.append(f"\n{'=' * 100}\nOf {', '.join(crates)}:\n\n{text}\n")
    return "".join(parts)


def main() -> int:
    """Return 1 if `--check` finds that the file does not match the lock file."""
    text = document(compiled())
    if "--check" not in sys.argv:
        OUT.write_text(text, encoding="utf-8")
    elif not OUT.exists() or OUT.read_text(encoding="utf-8") != text:
        print(f"{OUT.name} is stale; run scripts/third_party.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
