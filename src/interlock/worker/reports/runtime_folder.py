"""A folder for files that other processes of the machine look for: a user's sockets and
journals."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["runtime_folder"]


def runtime_folder() -> Path:
    """Return ``$XDG_RUNTIME_DIR/interlock``, or this user's own folder among the temporary files.

    Raises:
        PermissionError: that folder belongs to another user.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base:
        folder = Path(base) / "interlock"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    folder = Path(tempfile.gettempdir()) / f"interlock-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Another user could create it first, and would then read and forge its files.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{folder} is not a private folder of this user; remove it, or set XDG_RUNTIME_DIR"
        )
    return folder
