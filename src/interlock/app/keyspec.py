"""The keys of a task, as given to ``@app.task(keys=...)``: templates, or a callable.

A template is a text with fields, ``"account:{src}"``, ``"site:{reading.site}"``, ``"{sides[0]}"``.
A field is looked up in the arguments, by attribute and index as ``str.format`` does, and must have
a type that ``key_value`` allows, so that no key comes from a ``repr`` by accident. Templates are
parsed when the task is declared: a template that names an argument the function lacks, or a field
whose annotation cannot be part of a key, is an error there.
"""

from __future__ import annotations

import inspect
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from interlock import _core
from interlock.app.key_value import ALLOWED, NoField, element, fits, hint_of, key_value, type_name
from interlock.message import Key, Keys

__all__ = ["KeySet", "KeySpec", "Rule", "rule"]

KeySpec = str | Iterable[str] | Callable[..., Keys]
"""One template, several, or a callable of the task's arguments that returns keys."""

Rule = Callable[[inspect.BoundArguments], tuple[bytes, ...]]
"""The keys of one call, canonical."""


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys under which one call of a task is handled, as canonical bytes."""

    keys: frozenset[bytes]
    """Keys held exclusively."""

    shared: frozenset[bytes]
    """Keys held together with other readers; none of ``keys`` is among them."""


@dataclass(frozen=True, slots=True)
class Field:
    """The part between braces: an argument, followed by attributes and indexes."""

    text: str
    argument: str
    path: tuple[tuple[bool, Any], ...]
    """(is an attribute, its name or index) from left to right."""

    def value(self, arguments: Mapping[str, Any]) -> Any:
        """Return the value of the field in this call."""
        found = arguments[self.argument]
        for is_attribute, name in self.path:
            found = getattr(found, name) if is_attribute else found[name]
        return found


class Template:
    """One parsed template of a key."""

    def __init__(
        self, text: str, where: str, signature: inspect.Signature, function: Callable[..., Any]
    ) -> None:
        """Parse a template, and check its fields against the function's annotations.

        ``where`` begins each error: the argument of ``task()`` that gave the template.
        """
        self.text = text
        self._where = where
        self._parts = tuple(_parts(text, where))
        self._sole = len(self._parts) == 1
        for part in self._parts:
            if not isinstance(part, Field):
                continue
            if part.argument not in signature.parameters:
                known = ", ".join(signature.parameters) or "none"
                raise TypeError(
                    f"{where}: {text!r} names {part.argument!r}, which {_name(function)}() does "
                    f"not have; its arguments: {known}"
                )
            kind = signature.parameters[part.argument].kind
            if kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
                self._judge(part, hint_of(function, part.argument))

    def key(self, arguments: Mapping[str, Any]) -> Key:
        """Return the key in this call; for a template that consists of one field, the value
        itself."""
        if self._sole and isinstance(self._parts[0], Field):
            return self._of(self._parts[0], arguments)
        parts = [
            part if isinstance(part, str) else str(self._of(part, arguments))
            for part in self._parts
        ]
        return "".join(parts)

    @property
    def _allowed(self) -> str:
        return f"{ALLOWED}, bytes" if self._sole else ALLOWED

    def _judge(self, field: Field, hint: Any) -> None:
        """Refuse a field that can never be part of a key."""
        for is_attribute, name in field.path:
            try:
                hint = element(hint, is_attribute, name)
            except NoField as error:
                raise TypeError(
                    f"{self._where}: {self.text!r} names {field.text!r}, which does not exist: "
                    f"{error}"
                ) from None
        if not fits(hint, self._sole):
            raise TypeError(
                f"{self._where}: {field.text!r} in {self.text!r} is {type_name(hint)}; allowed: "
                f"{self._allowed}"
            )

    def _of(self, field: Field, arguments: Mapping[str, Any]) -> str | int | bytes:
        value: Any
        try:
            value = field.value(arguments)
        except (AttributeError, LookupError, TypeError) as error:
            raise ValueError(
                f"{self._where}: {self.text!r} has no {field.text!r} in this call: {error}"
            ) from error
        found = key_value(value, self._sole)
        if found is None:
            raise TypeError(
                f"{self._where}: {field.text!r} in {self.text!r} is {type(value).__name__}; "
                f"allowed: {self._allowed}"
            )
        return found


def rule(
    name: str, spec: object, signature: inspect.Signature, function: Callable[..., Any]
) -> Rule:
    """Check what ``task()`` was given as ``keys`` or ``shared`` against the function.

    ``name`` says which of the two it is. Return the object that finds the keys of a call.

    Raises:
        TypeError, ValueError: the template names something that does not exist or cannot be part of
            a key, or is not a template, or the callable does not take the function's arguments.
    """
    where = f"task(): {name} of {_name(function)}()"
    if callable(spec):
        _check_callable(spec, where, signature)
        return _called(spec, where)
    texts = (spec,) if isinstance(spec, str) else spec
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | bytearray):
        raise TypeError(
            f"{where} is {type(spec).__name__}; allowed: a template such as 'account:{{id}}', "
            f"several of them, or a callable of the arguments"
        )
    templates = []
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"{where} holds {type(text).__name__}; allowed: templates, as str")
        templates.append(Template(text, where, signature, function))

    # Every send runs one of these.
    if not templates:
        return _no_keys
    if len(templates) == 1:
        key = templates[0].key
        return lambda bound: (_canonical(key(bound.arguments), where),)

    def keys_of(bound: inspect.BoundArguments) -> tuple[bytes, ...]:
        arguments = bound.arguments
        return tuple([_canonical(template.key(arguments), where) for template in templates])

    return keys_of


def _no_keys(bound: inspect.BoundArguments) -> tuple[bytes, ...]:
    return ()


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _called(spec: Callable[..., Any], where: str) -> Rule:
    def keys_of(bound: inspect.BoundArguments) -> tuple[bytes, ...]:
        # Its result is interpreted as a put interprets its keys.
        return _core.canonical_keys(spec(*bound.args, **bound.kwargs), call, name)

    call, _, name = where.partition(": ")
    return keys_of


def _check_callable(spec: Callable[..., Any], where: str, signature: inspect.Signature) -> None:
    try:
        taken = inspect.signature(spec)
    except (TypeError, ValueError):
        return  # written in C, without a signature
    every, kinds = signature.parameters.values(), inspect.Parameter
    stars = (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    named = {each.name: None for each in every if each.kind is kinds.KEYWORD_ONLY}
    placed = [each.name for each in every if each.kind not in (*stars, kinds.KEYWORD_ONLY)]
    try:
        taken.bind(*placed, **named)
    except TypeError as error:
        raise TypeError(
            f"{where} takes ({', '.join(taken.parameters)}); allowed: a callable that takes the "
            f"task's arguments, ({', '.join(signature.parameters)}) ({error})"
        ) from None


def _canonical(key: Any, where: str) -> bytes:
    try:
        return _core.canonical(key)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{where}: {error}") from None


def _parts(text: str, where: str) -> Iterable[str | Field]:
    allowed = "'{name}', '{name.attribute}', '{name[index]}'"
    if not text:
        raise ValueError(f"{where} holds an empty template; allowed: text with fields, {allowed}")
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise ValueError(
            f"{where}: {text!r} is not a template ({error}); write a brace twice"
        ) from None
    for literal, field, form, conversion in pieces:
        if literal:
            yield literal
        if field is None:
            continue
        if form or conversion:
            raise ValueError(f"{where}: {text!r} formats {field!r}; allowed in braces: {allowed}")
        yield _field(field, text, where, allowed)


def _field(field: str, text: str, where: str, allowed: str) -> Field:
    found = FIELD.fullmatch(field)
    if found is None:
        raise ValueError(
            f"{where}: {text!r} has {{{field}}}, which names no argument; allowed in braces: "
            f"{allowed}"
        )
    path = []
    for name, index in STEP.findall(found["path"]):
        path.append((True, name) if name else (False, int(index) if index.isdecimal() else index))
    return Field(field, found["argument"], tuple(path))


FIELD = re.compile(r"(?P<argument>[^\W\d]\w*)(?P<path>(?:\.[^\W\d]\w*|\[[^\[\]]+\])*)")
STEP = re.compile(r"\.([^\W\d]\w*)|\[([^\[\]]+)\]")
