"""Key templates and callables: what they give, and what is refused where a task is declared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import pytest

from interlock.app import App, KeySet


@dataclass
class Order:
    user_id: int
    sides: list[tuple[str, int]]


def transfer(src: str, dst: str, cents: int = 1) -> int:
    return cents


def keys_of(spec: Any, function: Callable[..., Any], *args: Any, **kwargs: Any) -> set[bytes]:
    return set(App().task(keys=spec)(function).keys_of(*args, **kwargs).keys)


def test_a_template_is_filled_from_the_arguments_however_they_are_given() -> None:
    task = App().task(keys=["account:{src}", "account:{dst}"], shared="rates")(transfer)
    expected = KeySet(frozenset({b"account:a", b"account:b"}), frozenset({b"rates"}))
    assert task.keys_of("a", "b") == task.keys_of(dst="b", src="a") == expected


def test_a_default_is_an_argument_like_any_other() -> None:
    assert keys_of("cents:{cents}", transfer, "a", "b") == {b"cents:1"}


def test_a_field_may_go_into_attributes_and_indexes() -> None:
    def match(order: Order, book: dict[str, str]) -> None: ...

    order = Order(7, [("X", 1), ("Y", -1)])
    spec = ["user:{order.user_id}", "{order.sides[1][0]}", "book:{book[name]}"]
    assert keys_of(spec, match, order, {"name": "n"}) == {b"user:7", b"Y", b"book:n"}


def test_a_template_of_one_field_returns_the_value_unconverted() -> None:
    def f(key: Any) -> None: ...

    assert keys_of("{key}", f, b"\xff") == {b"\xff"}
    assert keys_of("{key}", f, 7) == keys_of("{key}", f, "7") == {b"7"}


def test_doubled_braces_are_literal() -> None:
    assert keys_of("{{{src}}}", transfer, "a", "b") == {b"{a}"}


def test_a_key_callable_receives_arguments_and_defaults() -> None:
    assert keys_of(lambda src, dst, cents: [src, cents], transfer, "a", dst="b") == {b"a", b"1"}
    assert keys_of(lambda *args: args[0], transfer, "ab", "b") == {b"ab"}


def test_a_key_named_as_shared_and_exclusive_is_exclusive() -> None:
    task = App().task(keys="{src}", shared=["{src}", "{dst}"])(transfer)
    assert task.keys_of("a", "b") == KeySet(frozenset({b"a"}), frozenset({b"b"}))


@pytest.mark.parametrize(
    ("spec", "kind", "text"),
    [
        ("account:{source}", TypeError, r"'account:\{source\}' names 'source'.*transfer\(\) .*src"),
        ("{src!r}", ValueError, "formats 'src'"),
        ("{src:>5}", ValueError, "formats 'src'"),
        ("{0}", ValueError, "names no argument"),
        ("{}", ValueError, "names no argument"),
        ("{src.}", ValueError, "names no argument"),
        ("{src", ValueError, "not a template"),
        ("", ValueError, "empty template"),
        (3, TypeError, "keys of transfer.. is int"),
        (b"key", TypeError, "keys of transfer.. is bytes"),
        (["a", 3], TypeError, "holds int"),
        (lambda src: src, TypeError, r"the task's arguments, \(src, dst"),
    ],
)
def test_an_invalid_key_specification_is_refused_at_the_declaration(
    spec: Any, kind: type[Exception], text: str
) -> None:
    app = App()
    with pytest.raises(kind, match=text):
        app.task(keys=spec)(transfer)
    assert not app.tasks


@pytest.mark.parametrize("value", [1.5, None, True, b"a", ("a", 1)])
def test_a_value_that_cannot_be_part_of_a_key_is_refused_naming_its_field(value: Any) -> None:
    with pytest.raises(TypeError, match=rf"'src' in 'account:\{{src\}}' is {type(value).__name__}"):
        keys_of("account:{src}", transfer, value, "b")


def test_a_missing_attribute_is_named() -> None:
    with pytest.raises(ValueError, match=r"has no 'src\.user' in this call"):
        keys_of("u:{src.user}", transfer, "a", "b")


def test_arguments_that_the_function_does_not_take_are_refused() -> None:
    with pytest.raises(TypeError, match=r"transfer\(src, dst, cents\): too many positional"):
        keys_of("{src}", transfer, 1, 2, 3, 4)


@pytest.mark.parametrize("given", [bytearray(b"ab"), memoryview(b"ab")])
def test_a_buffer_is_no_list_of_numbers(given: Any) -> None:
    with pytest.raises(TypeError, match=f"keys of .* is {type(given).__name__}; .*bytes"):
        keys_of(lambda *_: given, transfer, "a", "b")


def test_keys_of_a_call_see_its_arguments_as_python_binds_them() -> None:
    def plain(a: int, b: int, c: int = 30, d: int = 40) -> list[str]:
        return [f"{a},{b},{c},{d}"]

    def placed(a: int, /, b: int, c: int = 30, d: int = 40) -> list[str]:
        return [f"{a},{b},{c},{d}"]

    for function in (plain, placed):
        task = App("redis://127.0.0.1:1").task(name="bound", keys=function)(function)
        for count in range(6):
            for names in subsets("abcde"):
                args, kwargs = range(count), {name: ord(name) for name in names}
                try:
                    wanted = function(*args, **kwargs)
                except TypeError:
                    with pytest.raises(TypeError, match="bound"):
                        task.keys_of(*args, **kwargs)
                else:
                    [key] = task.keys_of(*args, **kwargs).keys
                    assert key.decode() == wanted[0]


def subsets(names: str) -> list[tuple[str, ...]]:
    return [some for size in range(len(names) + 1) for some in combinations(names, size)]
