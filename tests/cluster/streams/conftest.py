"""One server of each engine for all the checks; a stream of its own for each."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.cluster.streams.engines import ENGINES
from tests.cluster.streams.engines.server import Engine


def skip_if_slow(engine: type[Engine]) -> None:
    if engine.is_slow and os.environ.get("INTERLOCK_STREAMS") != "all":
        pytest.skip(f"{engine.__name__} takes its time: with INTERLOCK_STREAMS=all")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    engine_type = ENGINES[request.param]
    skip_if_slow(engine_type)
    made = engine_type(tmp_path_factory.mktemp(request.param))
    made.start()
    yield made
    made.close()
