"""Types of key fields: those that give a key, and those that are refused at the declaration."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import msgspec
import pytest

from interlock.app import App

Id = NewType("Id", int)
BERLIN = dt.timezone(dt.timedelta(hours=2))
NOON = dt.datetime(2026, 7, 1, 12, 0, tzinfo=BERLIN)
ONE = uuid.UUID(int=1)


class Colour(enum.Enum):
    RED = "r"


class Text(str, enum.Enum):  # noqa: UP042 - of those, str() is not the value
    RED = "t"


class Number(enum.IntEnum):
    ONE = 1


class Rate(enum.Enum):
    HALF = 0.5


class Place(NamedTuple):
    row: int
    price: float


class Book(TypedDict):
    name: str
    price: float


@dataclass
class Line:
    id: uuid.UUID
    price: float


@dataclass
class Order:
    account_id: Id
    day: dt.date
    total: float
    tags: list[str]
    lines: list[Line]
    first: Line
    note: str | None = None

    @property
    def owner(self) -> str:
        return "o"

    @property
    def weight(self) -> float:
        return 1.5


class Reading(msgspec.Struct):
    site: str
    value: float
    near: dict[str, int]


def key_of(spec: str, function: Callable[..., Any], *args: Any) -> bytes:
    found: frozenset[bytes] = App().task(keys=spec)(function).keys_of(*args).keys
    assert len(found) == 1
    return min(found)


def any_of(x: Any) -> None: ...


def order_of(order: Order) -> None: ...


def reading_of(reading: Reading) -> None: ...


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ONE, b"00000000-0000-0000-0000-000000000001"),
        (dt.date(2026, 7, 1), b"2026-07-01"),
        (dt.datetime(2026, 7, 1, 12), b"2026-07-01T12:00:00"),
        (NOON, b"2026-07-01T10:00:00+00:00"),
        (Colour.RED, b"r"),
        (Text.RED, b"t"),
        (Number.ONE, b"1"),
    ],
)
def test_a_value_gives_a_text_alone_and_within_a_template(value: Any, text: bytes) -> None:
    assert key_of("{x}", any_of, value) == text
    assert key_of("at:{x}", any_of, value) == b"at:" + text


def test_a_datetime_gives_the_same_key_in_every_time_zone() -> None:
    assert key_of("{x}", any_of, NOON) == key_of("{x}", any_of, NOON.astimezone(dt.UTC))


@pytest.mark.parametrize("value", [0.5, True, None, [1], {"a": 1}, Rate.HALF, dt.time(12), b"x"])
def test_another_value_is_refused_when_it_is_sent(value: Any) -> None:
    with pytest.raises(TypeError, match=r"'x' in 'at:\{x\}' is .*; allowed: str, int, UUID, date"):
        key_of("at:{x}", any_of, value)


def test_fields_of_dataclasses_structs_and_what_they_hold_are_found() -> None:
    order = Order(Id(7), dt.date(2026, 7, 1), 1.5, ["a"], [Line(ONE, 1.0)], Line(ONE, 1.0), "n")
    for spec, key in (
        ("account:{order.account_id}", b"account:7"),
        ("{order.day}", b"2026-07-01"),
        ("{order.tags[0]}", b"a"),
        ("{order.lines[0].id}", str(ONE).encode()),
        ("{order.first.id}", str(ONE).encode()),
        ("{order.note}", b"n"),
        ("{order.owner}", b"o"),
    ):
        assert key_of(spec, order_of, order) == key
    reading = Reading("north", 0.5, {"a": 3})
    assert key_of("site:{reading.site}", reading_of, reading) == b"site:north"
    assert key_of("{reading.near[a]}", reading_of, reading) == b"3"


@pytest.mark.parametrize(
    ("spec", "function", "text"),
    [
        ("x:{order.total}", order_of, r"'order\.total' in 'x:\{order\.total\}' is float; allowed"),
        ("{order.tags}", order_of, r"'order\.tags' in .* is list\[str\]"),
        ("{order.lines[0]}", order_of, r"'order\.lines\[0\]' .* is Line"),
        ("{order.lines[0].price}", order_of, "is float"),
        ("{order}", order_of, "is Order"),
        ("{order.weight}", order_of, "is float"),
        (
            "{order.acount}",
            order_of,
            r"'order\.acount', which does not exist: Order has account_id",
        ),
        ("{reading.value}", reading_of, "is float"),
        ("{reading.near}", reading_of, r"is dict\[str, int\]"),
        ("{reading.place}", reading_of, "Reading has site, value, near"),
    ],
)
def test_a_field_that_cannot_be_a_key_is_refused_at_the_declaration(
    spec: str, function: Callable[..., Any], text: str
) -> None:
    app = App()
    with pytest.raises(TypeError, match=text):
        app.task(shared=spec)(function)
    assert not app.tasks


@pytest.mark.parametrize(
    ("hint", "allowed"),
    [
        (str, True),
        (Id, True),
        (Annotated[int, msgspec.Meta(ge=0)], True),
        (Literal["a", "b"], True),
        (Colour, True),
        (uuid.UUID, True),
        (str | None, True),
        (float | str, True),
        (Any, True),
        (object, True),
        ("Unknown", True),
        (float, False),
        (bool, False),
        (None, False),
        (bytes, False),
        (float | None, False),
        (list[str], False),
        (dict[str, int], False),
        (set[int], False),
        (tuple[int, ...], False),
        (dt.time, False),
        (dt.timedelta, False),
        (Rate, False),
        (Literal[True], False),
        (Annotated[float, "kg"], False),
    ],
)
def test_an_annotation_of_a_key_field_is_accepted_or_refused(hint: Any, allowed: bool) -> None:
    def f(x: Any) -> None: ...

    f.__annotations__["x"] = hint
    if allowed:
        App().task(keys="at:{x}")(f)
    else:
        with pytest.raises(TypeError, match=r"keys of f\(\): 'x' in 'at:\{x\}' is "):
            App().task(keys="at:{x}")(f)


def test_bytes_can_be_a_key_but_not_part_of_a_template() -> None:
    def f(x: bytes) -> None: ...

    assert key_of("{x}", f, b"\xff") == b"\xff"
    with pytest.raises(TypeError, match="is bytes"):
        App().task(keys="at:{x}")(f)


def test_items_of_tuples_and_typed_dicts_are_checked_by_index_and_name() -> None:
    def f(pair: tuple[int, float], place: Place, book: Book, many: tuple[int, ...]) -> None: ...

    for spec in ("{pair[0]}", "{place.row}", "{book[name]}", "{many[5]}"):
        App().task(keys=spec)(f)
    for spec in ("{pair[1]}", "{pair[2]}", "{place.price}", "{book[price]}", "{book[title]}"):
        with pytest.raises(TypeError, match=r"float|2 parts|Book has name, price"):
            App().task(keys=spec)(f)


def test_an_annotation_defined_later_is_checked_when_a_message_is_sent() -> None:
    def f(order: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    App().task(keys="{order.total}")(f)


def test_variadic_arguments_are_checked_when_a_message_is_sent() -> None:
    def f(*ids: int, **named: str) -> None: ...

    task = App().task(keys=["{ids[0]}", "{named[a]}"])(f)
    assert task.keys_of(7, a="x").keys == {b"7", b"x"}
