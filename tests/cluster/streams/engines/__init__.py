"""The servers of each backend of streams: a module of this package has the name of the backend.

It has the servers (`ENGINES`, by name), the settings that their logs must not have, and a server
with a user to whom rights can be denied (`GUARD`).
"""

from __future__ import annotations

from importlib import import_module

from interlock.cluster.streams import BACKENDS
from tests.cluster.streams.engines.server import Engine, Guard

_MODULES = {kind: import_module(f"{__name__}.{kind}") for kind in BACKENDS}
ENGINES: dict[str, type[Engine]] = {
    name: engine for module in _MODULES.values() for name, engine in module.ENGINES.items()
}
GUARDS: dict[str, tuple[type[Guard], type[Engine]]] = {
    kind: module.GUARD for kind, module in _MODULES.items()
}
