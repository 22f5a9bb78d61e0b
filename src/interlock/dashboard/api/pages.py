"""Pages and their files: read from the package, nothing in them made from data."""

from __future__ import annotations

from pathlib import Path

from interlock import timeline

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""Types of the files that are served."""


class Pages:
    """The files of a folder, with the timeline's in `timeline/`; read again when changed."""

    def __init__(self, folder: Path, base_path: str) -> None:
        self._folder = folder.resolve()
        self._timeline = timeline.STATIC.resolve()
        self._base = base_path
        self._read: dict[str, tuple[str, bytes]] = {}

    def file(self, name: str) -> tuple[bytes, str, str] | None:
        """Return a file's bytes, its type and its tag; None if it does not exist."""
        if "\0" in name or "\\" in name:
            return None
        first, _, rest = name.partition("/")
        folder, inside = (self._timeline, rest) if first == "timeline" else (self._folder, name)
        path = (folder / inside).resolve()
        kind = TYPES.get(path.suffix)
        if kind is None or not path.is_relative_to(folder):
            return None
        try:
            stat = path.stat()
            tag = f'"{stat.st_mtime_ns:x}-{stat.st_size:x}"'
            known = self._read.get(str(path))
            if known is None or known[0] != tag:
                # By its real path, so that there are at most as many entries as files.
                known = self._read[str(path)] = tag, self._placed(path)
        except OSError:
            return None
        return known[1], kind, tag

    def _placed(self, path: Path) -> bytes:
        """Read a file; a page gets the path under which a proxy shows it."""
        data = path.read_bytes()
        return data.replace(BASE, self._base.encode()) if path.suffix == ".html" else data


BASE = b"{{base}}"
