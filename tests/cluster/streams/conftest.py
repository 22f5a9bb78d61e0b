"""One server of each engine for all the checks; a stream of its own for each."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock.cluster.streams import ChangeStream, Role, open_stream
from tests.cluster.streams.engines import ENGINES, Engine

Open = Callable[..., ChangeStream]


@pytest.fixture(scope="module", params=list(ENGINES))
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    made = ENGINES[request.param](tmp_path_factory.mktemp(request.param))
    made.start()
    yield made
    made.stop()


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
