"""One server of each engine for all the checks; a stream of its own for each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock.cluster.streams import ChangeStream, Role, open_stream
from tests.cluster.streams.engines import ENGINES, LONG, Engine

Open = Callable[..., ChangeStream]


@pytest.fixture(scope="module", params=[*ENGINES, *LONG])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if request.param in LONG and os.environ.get("INTERLOCK_STREAMS") != "all":
        pytest.skip(f"{request.param} takes its time: with INTERLOCK_STREAMS=all")
    made = (ENGINES | LONG)[request.param](tmp_path_factory.mktemp(request.param))
    made.start()
    yield made
    made.close()


@pytest.fixture
def opened(engine: Engine) -> Iterator[Open]:
    """Opens the stream of this test: `opened("append")`, `opened("read")`."""
    name, all_opened = uuid.uuid4().hex, []

    def make(role: Role, **options: Any) -> ChangeStream:
        own = name + options.pop("name_suffix", "")
        made = open_stream(engine.url, own, role=role, **{"timeout": 5.0, **options})
        all_opened.append(made)
        return made

    yield make
    for made in all_opened:
        made.close()
