"""Sent arguments are judged by a function's parameters before anything is decoded or run."""

from __future__ import annotations

import inspect
import random
from typing import Any

import pytest

from interlock import PayloadError
from interlock.app.parameters import Parameters
from interlock.worker.message.tasks import UnknownArgument

KINDS = inspect.Parameter
PLAIN = [KINDS.POSITIONAL_ONLY, KINDS.POSITIONAL_OR_KEYWORD, KINDS.KEYWORD_ONLY]
NAMES = ["a", "b", "c", "d", "e"]


def signature(chance: random.Random) -> inspect.Signature:
    """Any there may be: its kinds in their order, defaults behind what has none."""
    found, defaults = [], False
    for name in NAMES[: chance.randint(0, 5)]:
        found.append((name, chance.choice(PLAIN)))
    parameters = []
    for name, kind in sorted(found, key=lambda one: one[1]):
        defaults = chance.random() < 0.4 or (defaults and kind is not KINDS.KEYWORD_ONLY)
        default: Any = 1 if defaults else KINDS.empty
        parameters.append(inspect.Parameter(name, kind, default=default))
    if chance.random() < 0.25:
        parameters.append(inspect.Parameter("rest", KINDS.VAR_POSITIONAL))
    if chance.random() < 0.25:
        parameters.append(inspect.Parameter("more", KINDS.VAR_KEYWORD))
    return inspect.Signature(sorted(parameters, key=lambda one: one.kind))


@pytest.mark.parametrize("seed", range(20))
def test_arguments_are_accepted_exactly_as_in_a_python_call(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        takes = signature(chance)
        # Not Signature.bind, which refuses some calls that Python makes.
        function = eval(f"lambda {str(takes)[1:-1]}: None")
        args = [0] * chance.randint(0, 6)
        kwargs = dict.fromkeys(chance.sample([*NAMES, "f", "rest"], chance.randint(0, 4)), 0)
        try:
            function(*args, **kwargs)
            fits = True
        except TypeError:
            fits = False
        try:
            Parameters("task", takes).check(args, kwargs)
            judged = True
        except (PayloadError, UnknownArgument):
            judged = False
        assert judged == fits, (str(takes), args, kwargs)


def takes(a: int, b: int = 1, *, c: int = 2) -> None: ...


@pytest.mark.parametrize(
    ("args", "kwargs", "raised", "text"),
    [
        ([1, 2, 3], {}, UnknownArgument, "with 3 positional arguments, but takes 2"),
        ([1], {"d": 1}, UnknownArgument, "with the argument 'd', which this worker does not know"),
        ([], {"d": 1}, UnknownArgument, "'d'"),
        ([], {}, PayloadError, "was sent no argument 'a', which it requires; give it a default"),
        ([], {"b": 1}, PayloadError, "'a'"),
        ([1], {"a": 1}, PayloadError, "was sent the argument 'a' twice"),
    ],
)
def test_an_argument_that_does_not_fit_is_named(
    args: list[int], kwargs: dict[str, int], raised: type[Exception], text: str
) -> None:
    with pytest.raises(raised, match=text):
        Parameters("takes", inspect.signature(takes)).check(args, kwargs)
