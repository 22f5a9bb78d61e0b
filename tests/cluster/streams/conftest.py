"""One server of each engine for all the checks; a stream of its own for each."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.cluster.streams.engines import ENGINES, LONG


@pytest.fixture(scope="module", params=[*ENGINES, *LONG])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param in LONG and os.environ.get("INTERLOCK_STREAMS") != "all":
        pytest.skip(f"{request.param} takes its time: with INTERLOCK_STREAMS=all")
    made = (ENGINES | LONG)[request.param](tmp_path_factory.mktemp(request.param))
    made.start()
    yield made
    made.close()
