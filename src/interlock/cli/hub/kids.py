"""`interlock hub --convert-kids FILE`: a configuration of kids as one of the hub."""

from __future__ import annotations

import sys
from pathlib import Path


def convert_kids(file: str) -> int:
    """Print the configuration, and separately the dropped settings; return the exit code."""
    from interlock.hub.kids.conversion import converted
    from interlock.hub.kids.grammar import KidsError

    try:
        found = converted(Path(file).read_text(encoding="utf-8", errors="surrogateescape"))
    except KidsError as error:
        print(f"interlock: {file}: {error}", file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(f"interlock: {file}: {error.strerror or error}", file=sys.stderr)
        return BAD_INPUT
    sys.stdout.buffer.write(found.text.encode(errors="replace"))
    sys.stdout.flush()
    for note in found.notes:
        print(f"interlock: {file}: {note}".encode(errors="replace").decode(), file=sys.stderr)
    return 0


BAD_INPUT = 2
