"""Write the files made from the declaration of the wire, in wire/, or compare them.

    python -m scripts.wire           write it
    python -m scripts.wire --check   exit with 1 if something is not what it would write

An entry there is the whole declaration of a function, an option, a limit, a code or a record for
the engine in Rust, the library in Lua, the client and the reference pages. The generated files are
checked in.
"""

from __future__ import annotations

import sys

from scripts.wire import pages, sources
from scripts.wire.declaration import ROOT, Invalid, declared


def main() -> int:
    """0 if everything matches the declaration."""
    try:
        wire = declared()
        made = sources.all_of(wire) | pages.all_of(wire)
    except Invalid as error:
        print(f"wire/: {error}", file=sys.stderr)
        return 1
    stale = False
    for name, text in made.items():
        path = ROOT / name
        if path.exists() and path.read_text("utf-8") == text:
            continue
        if "--check" in sys.argv[1:]:
            stale = True
            print(f"{name} is not what wire/ declares: run make generate", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
            print(f"wrote {name}")
    return int(stale)


if __name__ == "__main__":
    sys.exit(main())
