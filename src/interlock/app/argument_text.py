"""Arguments of a task as text, as they come from a command line.

Each is read by the annotation of its parameter: text stays text if the annotation is ``str``. All
else is read as JSON or, if it is not JSON, as the text of a date, a UUID or an enum.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from interlock.app.key_value import hint_of, type_name

__all__ = ["arguments_of", "value_of"]


def arguments_of(
    function: Any, signature: inspect.Signature, placed: Sequence[str], named: Mapping[str, str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call. Raises ValueError, which names the wrong one."""
    kinds = inspect.Parameter
    parameters = list(signature.parameters.values())
    in_place = [
        each.name
        for each in parameters
        if each.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    ]
    rest = next((each.name for each in parameters if each.kind is kinds.VAR_POSITIONAL), None)
    more = next((each.name for each in parameters if each.kind is kinds.VAR_KEYWORD), None)
    takes = f"{function.__name__}({', '.join(map(str, parameters))})"
    args = []
    for place, text in enumerate(placed):
        name = in_place[place] if place < len(in_place) else rest
        if name is None:
            raise ValueError(f"{takes} takes {len(in_place)} arguments; {len(placed)} given")
        args.append(_argument(name, text, hint_of(function, name), takes))
    kwargs = {}
    for name, text in named.items():
        known = name if name in signature.parameters else more
        if known is None:
            raise ValueError(f"{takes} has no argument {name!r}")
        kwargs[name] = _argument(name, text, hint_of(function, known), takes)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ValueError(f"{takes}: {error}") from None
    return tuple(args), kwargs


def value_of(text: str, hint: Any) -> Any:
    """Return the value of a text for a wanted type. Raises ValueError."""
    if hint is str:
        return text
    if hint is bytes:
        return text.encode()
    try:
        msgspec.json.Decoder(hint)
    except (TypeError, NameError, AttributeError):
        # The type does not restrict the value, or names something that cannot be found.
        hint = Any
    if hint is Any or hint is object:
        try:
            return json.loads(text)
        except RecursionError as error:
            raise ValueError(str(error)) from None
        except ValueError:
            return text
    try:
        return msgspec.json.decode(text, type=hint)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        wrong = str(error)
    try:
        return msgspec.convert(text, hint, strict=False)
    except (msgspec.MsgspecError, ValueError) as error:
        if _is_json(text):
            raise ValueError(wrong) from None
        raise ValueError(str(error)) from None


def _argument(name: str, text: str, hint: Any, takes: str) -> Any:
    try:
        return value_of(text, hint)
    except ValueError as error:
        raise ValueError(
            f"argument {name!r} of {takes} is {text!r}; allowed: {type_name(hint)}, as JSON or "
            f"plain ({error})"
        ) from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
