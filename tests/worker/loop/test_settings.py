"""Options that a worker may be given. Nothing connects."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.app import App


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threads": 0}, "threads is 0"),
        ({"pool": "fork"}, "pool is 'fork'; allowed: thread, asyncio, process"),
        ({"queues": ()}, "queues is"),
        ({"queues": ("a", "a")}, "names one twice"),
        ({"pool": "process"}, "not a global name of a module"),
    ],
)
def test_an_invalid_worker_option_is_named(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        App().worker(**options)


@pytest.mark.parametrize("wrong", [5, 1.5, object()])
def test_an_invalid_list_of_queue_names_is_named(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"worker\(\): queues is .*; allowed: the names of queues"):
        App().worker(queues=wrong)
