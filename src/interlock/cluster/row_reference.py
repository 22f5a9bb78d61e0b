"""Loads the class of a table's rows: ``presence.py:Presence``, ``module:Class``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

from interlock.table.row import Row


def load_row(reference: str) -> type[Row]:
    """Return the class that a reference names.

    Raises:
        ValueError: the file, module or class does not exist, cannot be imported, or is not a class
            of rows.
    """
    place, colon, name = reference.rpartition(":")
    if not (colon and place and name):
        raise ValueError(
            f"{reference!r} names no class of rows; allowed: FILE.py:CLASS, MODULE:CLASS"
        )
    try:
        module = _module(place)
    except ValueError:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(f"{place} cannot be imported: {kind}: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, type) or not issubclass(found, Row):
        raise ValueError(
            f"{place} has no class of rows {name!r}; one is `class {name}(interlock.Row): ...`"
        )
    return found


def _module(place: str) -> object:
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not place.startswith(error.name):
                raise
            raise ValueError(f"there is no module {place!r}; a file is named by its .py") from None
    path = Path(place)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ValueError(f"there is no file {place!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    return module
