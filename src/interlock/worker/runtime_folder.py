"""A folder where a user's workers leave what others of the machine look for: sockets, journals."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["runtime_folder"]


def runtime_folder() -> Path:
    """``$XDG_RUNTIME_DIR/interlock``, or a folder of this user's own among the temporary files.

    Raises:
        PermissionError: that folder is somebody else's.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base:
        folder = Path(base) / "interlock"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder
    folder = Path(tempfile.gettempdir()) / f"interlock-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Anybody may make it before us, and would then read and forge what is in it.
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(
            f"{folder} is not a folder of this user's alone; remove it, or set XDG_RUNTIME_DIR"
        )
    return folder
