"""The files that are made from the declaration as a whole."""

from __future__ import annotations

from scripts.wire import commands, figures, lua, python, rust, scheduler
from scripts.wire.declaration import Wire
from scripts.wire.text import MADE, ruff, rustfmt

ENGINE = "crates/interlock-engine/src/wire"
CORE = "crates/interlock-core/src"
SCHEDULES = "crates/interlock-core/tests/random_schedules"
ROWS = "crates/interlock-rows/src"
HUB = "crates/interlock-hub/src/catalog"
LUA = "src/interlock/client/lua/shared"
PYTHON = "src/interlock"


def all_of(wire: Wire) -> dict[str, str]:
    """Return the text of each file, by its path."""
    in_rust = {
        f"{ENGINE}/limits.rs": rust.engine_limits(wire),
        f"{ENGINE}/functions.rs": rust.functions(wire),
        f"{ENGINE}/records.rs": rust.records(wire),
        f"{ENGINE}/options.rs": rust.options(wire),
        f"{ENGINE}/codes.rs": rust.codes(wire),
        f"{ENGINE}/figures.rs": figures.of_engine(wire),
        f"{CORE}/limits.rs": rust.core_limits(wire),
        f"{CORE}/queue/types/options.rs": scheduler.options(wire),
        f"{CORE}/queue/types/stats.rs": figures.of_scheduler(wire),
        f"{SCHEDULES}/tried.rs": scheduler.tried(wire),
        f"{ROWS}/limits.rs": rust.rows_limits(wire),
        f"{HUB}/functions.rs": commands.hub_functions(wire),
    }
    in_python = {
        f"{PYTHON}/runtime/limits.py": python.limits(wire),
        f"{PYTHON}/client/wire/functions.py": python.declared(wire),
        f"{PYTHON}/client/connection/refusal_table.py": python.refusal_table(wire),
    }
    return {
        **{path: rustfmt(f"// {MADE}\n\n{text}") for path, text in in_rust.items()},
        **{path: ruff(text) for path, text in (in_python | python.parts(wire)).items()},
        f"{LUA}/calls/limits.lua": lua.limits(wire),
        f"{LUA}/calls/declared.lua": lua.declared(wire),
    }
