"""Checks a call against a function's parameters, before a handler runs.

It uses names and counts alone and decodes nothing: a worker must know the result when it takes the
message, because another worker's function may have an argument that this one lacks.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

from interlock.errors import PayloadError
from interlock.worker.message.tasks import UnknownArgument

__all__ = ["Parameters"]


class Parameters:
    """The names and the number of the arguments that a function takes."""

    def __init__(self, task: str, signature: inspect.Signature) -> None:
        self._task = task
        kinds = inspect.Parameter
        by_place = {kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD}
        by_name = {kinds.KEYWORD_ONLY, kinds.POSITIONAL_OR_KEYWORD}
        parameters = list(signature.parameters.values())
        found = {parameter.kind for parameter in parameters}
        self._placed = [one.name for one in parameters if one.kind in by_place]
        self._named = {one.name for one in parameters if one.kind in by_name}
        self._wanted = [
            (one.name, one.kind is not kinds.POSITIONAL_ONLY)
            for one in parameters
            if one.kind in by_place | by_name and one.default is kinds.empty
        ]
        self._any_placed = kinds.VAR_POSITIONAL in found
        self._any_named = kinds.VAR_KEYWORD in found
        placed = sum(name in self._placed for name, _ in self._wanted)
        self.fewest = placed if placed == len(self._wanted) else len(self._placed) + 1
        """With this many positional arguments, and none by name, every required one is present."""
        self.most = len(self._placed)
        """Number of positional arguments it knows, apart from ``*args``."""

    def check(self, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
        """Raise an error if the arguments do not match the function.

        UnknownArgument if the function lacks an argument that was sent; PayloadError if a required
        one was not sent, or one was sent twice: no attempt could succeed.
        """
        if len(args) > self.most and not self._any_placed:
            what = f"{len(args)} positional arguments, but takes {self.most}"
            raise UnknownArgument(self._task, what)
        if not self._any_named:
            for name in kwargs:
                if name not in self._named:
                    raise UnknownArgument(self._task, f"the argument {name!r}")
        given = set(self._placed[: len(args)])
        for name in kwargs:
            if name in given and name in self._named:
                raise PayloadError(f"{self._task}() was sent the argument {name!r} twice")
        for name, may_be_named in self._wanted:
            if name not in given and not (may_be_named and name in kwargs):
                raise PayloadError(
                    f"{self._task}() was sent no argument {name!r}, which it requires; give it a "
                    "default for messages that were sent without it"
                )
