"""Finds an app by its reference, ``module:name``, as the command line gives it."""

from __future__ import annotations

import importlib
import sys
import traceback
from typing import Any

__all__ = ["NoApp", "load"]


class NoApp(Exception):
    """The reference does not lead to an app; the text names the mistake and the remedy."""

    def __init__(self, text: str, traceback: str = "") -> None:
        self.traceback = traceback
        """Traceback of the module, if its own code raised."""
        super().__init__(text)


def load(reference: str, kind: type[Any]) -> Any:
    """Import the module and return the app, which must be of this kind. Raises NoApp."""
    module_name, colon, path = reference.partition(":")
    if not (module_name and colon and path) or module_name.endswith(".py") or "/" in module_name:
        raise NoApp(
            f"{reference!r} is not a reference to an app; allowed: module:name, such as "
            f"'shop.tasks:app' (dots, no slashes and no .py)"
        )
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            where = ", ".join(sys.path[:2])
            raise NoApp(
                f"there is no module {error.name!r}; it is searched for in the current folder "
                f"and on Python's path ({where}, ...)"
            ) from None
        raise NoApp(f"the module {module_name!r} cannot be imported: {error}", _own()) from error
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise NoApp(f"the module {module_name!r} cannot be imported: {what}", _own()) from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise NoApp(f"there is no {path!r} in the module {module_name!r}{_hint(found, kind)}")
        found = getattr(found, name)
    if not isinstance(found, kind):
        module = sys.modules[module_name]
        raise NoApp(
            f"{reference} is {type(found).__name__}, not {kind.__name__}{_hint(module, kind)}"
        )
    return found


def _hint(module: Any, kind: type[Any]) -> str:
    apps = sorted(name for name, value in vars(module).items() if isinstance(value, kind))
    if apps:
        return f"; there is {', '.join(apps)}"
    return f"; it has none: create one with app = interlock.{kind.__name__}()"


def _own() -> str:
    """Return the traceback from the module on; the frames of the importer do not help the
    reader."""
    kind, error, trace = sys.exc_info()
    while trace is not None and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    while trace is not None and "importlib" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return "".join(traceback.format_exception(kind, error, trace))
