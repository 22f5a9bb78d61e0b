"""Tasks that are given lists: what may be declared, sent and called, and how tests see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from interlock import App, Run
from interlock.retry import Retry


@dataclass
class Update:
    account: int
    amount: int


@pytest.fixture
def app() -> App:
    return App("memory://", retry=Retry(2, first=0, jitter=False))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"run": "3"}, TypeError, "task(): run is str; allowed: int"),
        ({"run": True}, TypeError, "task(): run is bool; allowed: int"),
        ({"run": 1}, ValueError, "task(): run is 1; allowed: 2 to 1,024"),
        ({"run": 1_025}, ValueError, "task(): run is 1025; allowed: 2 to 1,024"),
        ({"run": 3, "keys": ()}, ValueError, "task(): run without keys"),
        ({"run": 3, "result_ttl": 5}, ValueError, "task(): run with result_ttl; allowed: one of"),
        ({"run": 3, "coalesce": "c"}, ValueError, "task(): run with coalesce; allowed: one of"),
    ],
)
def test_a_wrong_run_is_refused_with_its_name(
    app: App, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error) as caught:
        app.task(**{"keys": "k", **options})
    assert text in str(caught.value)


def test_a_function_of_two_arguments_takes_no_runs(app: App) -> None:
    def two(first: int, second: int) -> None: ...

    with pytest.raises(TypeError, match=r"two.* allowed with run=: a function of one argument"):
        app.task(keys="k", run=3)(two)  # type: ignore[arg-type]


def test_the_argument_of_a_task_that_takes_runs_has_no_default(app: App) -> None:
    def book(updates: Any = ()) -> None: ...

    with pytest.raises(TypeError, match="allowed with run=: a function of one argument without a"):
        app.task(keys="k", run=3)(book)


def test_calls_sent_by_the_name_of_their_argument_are_in_the_list(app: App) -> None:
    given: list[Any] = []

    @app.task(keys=lambda numbers: "k", run=9)
    def book(numbers: Run[int]) -> None:
        given.append(list(numbers))

    with app.testing() as worker:
        book.send(1)
        for number in (2, 3):
            book.send(numbers=number)  # type: ignore[call-arg]
        worker.run_until_idle()
        assert [call.args for call in worker.acked] == [(1,), (2,), (3,)]
    assert given == [[1, 2, 3]]


def test_a_test_goes_on_after_a_call_that_cannot_be_decoded(app: App) -> None:
    given: list[Any] = []

    @app.task(keys=lambda numbers: "k", run=9)
    def book(numbers: Run[int]) -> None:
        given.append(list(numbers))

    with app.testing() as worker:
        for number in ("x", 2, "y", 3):
            book.send(number)  # type: ignore[arg-type]
        worker.run_until_idle(raise_errors=False)
        assert len(worker.dead) == 2 and len(worker.acked) == 2
    assert given == [[2], [3]]


def test_an_argument_is_decoded_to_the_type_of_the_items(app: App) -> None:
    given: list[Any] = []

    def book(updates: Run[Update]) -> None:
        given.append(list(updates))
        assert [message.attempt for message in updates.messages] == [1] * len(updates)

    book.__annotations__["updates"] = Run[Update]
    task = app.task(keys="account:{updates.account}", run=3)(book)
    with app.testing() as worker:
        for account, amount in ((1, 10), (2, 20), (1, 11), (1, 12), (1, 13)):
            task.send(Update(account, amount))
        assert worker.run_until_idle() == 3
        assert [call.args for call in worker.acked][:1] == [(Update(1, 10),)]
        assert len(worker.acked) == 5
    assert given == [
        [Update(1, 10), Update(1, 11), Update(1, 12)],
        [Update(2, 20)],
        [Update(1, 13)],
    ]


def test_a_test_sees_what_was_done_and_what_failed(app: App) -> None:
    @app.task(keys=lambda numbers: "k", run=9)
    def divide(numbers: Run[int]) -> None:
        for count, number in enumerate(numbers):
            numbers.done(count)
            1 / number

    with app.testing() as worker:
        for number in (1, 0, 2):
            divide.send(number)
        worker.run_until_idle(raise_errors=False)
        assert [call.args for call in worker.acked] == [(1,), (2,)]
        assert [call.args for call in worker.dead] == [(0,)]
        assert [type(error) for error in worker.errors] == [ZeroDivisionError] * 2


def test_a_template_names_a_field_of_one_argument(app: App) -> None:
    def book(updates: Any) -> None: ...

    book.__annotations__["updates"] = Run[Update]
    with pytest.raises(TypeError, match=r"'updates\.nothing', which does not exist"):
        app.task(keys="{updates.nothing}", run=3)(book)
    task = app.task(keys="{updates.account}", run=3)(book)
    assert task.keys_of(Update(7, 1)).keys == {b"7"}


def test_a_task_that_is_called_is_given_a_list_of_one(app: App) -> None:
    given: list[Any] = []

    @app.task(keys=lambda numbers: "k", run=9)
    def book(numbers: Run[int]) -> None:
        given.append((list(numbers), numbers.messages))
        numbers.done(1)

    book(7)
    assert given == [([7], ())]


def test_messages_of_two_tasks_are_in_no_common_run(app: App) -> None:
    given: list[Any] = []

    @app.task(keys=lambda numbers: "k", run=9)
    def one(numbers: Run[int]) -> None:
        given.append(("one", list(numbers)))

    @app.task(keys=lambda numbers: "k", run=9)
    def other(numbers: Run[int]) -> None:
        given.append(("other", list(numbers)))

    with app.testing() as worker:
        for task, number in ((one, 1), (one, 2), (other, 3), (other, 4), (one, 5)):
            task.send(number)
        worker.run_until_idle()
    assert given == [("one", [1, 2]), ("other", [3, 4]), ("one", [5])]


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"run": "3"}, TypeError, "put(): run is str; allowed: int"),
        ({"run": 1}, ValueError, "put(): run is 1; allowed: 2 to 1,024"),
        ({"run": 3, "label": b"x"}, TypeError, "put(): label is bytes; allowed: str"),
        ({"run": 3, "label": "x" * 257}, ValueError, "put(): label has 257 bytes; allowed: up to"),
        ({"label": "x"}, ValueError, "put(): label without run"),
        ({"run": 3, "barrier": True, "keys": None}, ValueError, "put(): run with barrier"),
    ],
)
def test_a_put_with_a_wrong_run_is_refused(
    app: App, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    queue = app._queue("default")
    with pytest.raises(error) as caught:
        queue.put(b"x", **{"keys": "k", **options})
    assert text in str(caught.value)
    assert queue.stats().puts == 0
