"""The two faces of a queue, and of a lease, have the same methods with the same arguments."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from interlock import AsyncLease, AsyncQueue, KeyedQueue, Lease

AWAITED = {"put", "put_known", "put_many", "get", "get_many", "ack_many", "consume", "join"}
OF_ONE_FACE = {
    # Methods that never wait need only one form.
    "aio",
    "bury",
    "cancel",
    "configure",
    "dead_letters",
    "discard",
    "explain",
    "hot_keys",
    "limits",
    "maxbytes",
    "messages",
    "name",
    "pause",
    "purge",
    "record",
    "recording",
    "requeue",
    "resume",
    "retry",
    "revoke",
    "roots",
    "skip",
    "stats",
}

VALUES = {"is_shutdown", "maxsize", "queue", "unfinished_tasks"}
"""Members of the asyncio face that are not methods."""
PLAIN = {"id", "keys", "maxbytes", "maxsize", "name", "payload", "queue", "shared"}
"""Values whose names say all there is to say."""


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def parameters(function: Callable[..., Any]) -> dict[str, object]:
    """The names of the parameters and their defaults."""
    found = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in found if each.name not in ("self", "block")}


def test_each_method_is_on_both_apis_or_listed_as_being_on_one() -> None:
    assert public(AsyncQueue) - public(KeyedQueue) == {"queue"}
    assert public(KeyedQueue) - public(AsyncQueue) == OF_ONE_FACE


@pytest.mark.parametrize("name", sorted(public(AsyncQueue) - VALUES))
def test_a_method_has_the_same_arguments_on_both_apis(name: str) -> None:
    sync, aio = getattr(KeyedQueue, name), getattr(AsyncQueue, name)
    assert parameters(sync) == parameters(aio)
    if name in {"put", "get"}:
        # Native: what they give to be awaited is tested in test_aio_coroutine.py.
        assert inspect.ismethoddescriptor(aio)
    else:
        assert inspect.iscoroutinefunction(aio) == (name in AWAITED)
    assert aio.__doc__


@pytest.mark.parametrize("name", sorted(AWAITED - {"ack_many", "join"}))
def test_in_asyncio_timeout_is_keyword_only_and_block_does_not_exist(name: str) -> None:
    found = inspect.signature(getattr(AsyncQueue, name)).parameters
    assert found["timeout"].kind is inspect.Parameter.KEYWORD_ONLY
    assert "block" not in found


@pytest.mark.parametrize("name", ["put", "get", "put_many", "get_many"])
def test_block_and_timeout_have_the_positions_of_the_standard_queue(name: str) -> None:
    names = list(inspect.signature(getattr(KeyedQueue, name)).parameters)
    assert names[:1] == ["self"] and "block" in names
    assert names[names.index("block") + 1] == "timeout"


def test_a_lease_has_the_same_methods_on_both_apis() -> None:
    assert public(AsyncLease) == public(Lease)
    for name in ("ack", "nack", "reject", "release", "extend"):
        assert parameters(getattr(Lease, name)) == parameters(getattr(AsyncLease, name))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (kind, name)
        for kind in (KeyedQueue, AsyncQueue, Lease, AsyncLease)
        for name in sorted(public(kind) - PLAIN)
    ],
)
def test_everything_public_has_a_docstring(kind: type[Any], name: str) -> None:
    assert inspect.getdoc(inspect.getattr_static(kind, name))
