"""Tasks as functions, how they are declared, and how a call travels. Nothing connects."""

from __future__ import annotations

import asyncio
import copy
import datetime as dt
import pickle
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from interlock.app import App, AsyncTask, Middleware, Task, envelope
from interlock.errors import PayloadError, ResultGone
from interlock.retry import Retry
from interlock.worker.message.tasks import UnknownVersion


@dataclass(frozen=True)
class Order:
    id: int
    due: dt.date


app = App("redis://127.0.0.1:1")


@app.task(keys="order:{order.id}")
def ship(order: Order, *notes: str, rush: bool = False, **more: float) -> int:
    """Ships it."""
    return order.id


@app.task()
async def wait(seconds: float) -> str:
    return "waited"


def sent(task: Any, *args: Any, **kwargs: Any) -> bytes:
    return envelope.write(task.name, task.signature, args, kwargs, None, {})


def test_calling_a_task_calls_the_function() -> None:
    assert ship(Order(3, dt.date(2026, 1, 2))) == 3
    assert asyncio.run(wait(0.0)) == "waited"
    assert (type(ship), type(wait)) == (Task, AsyncTask)
    told = [getattr(ship, name) for name in ("__name__", "__doc__", "__module__")]
    assert told == ["ship", "Ships it.", __name__]


def test_arguments_are_decoded_by_their_annotations() -> None:
    order = Order(3, dt.date(2026, 1, 2))
    read = envelope.read(sent(ship, order, "a", "b", rush=True, weight=1.5))
    call = ship.types.decode(read)
    assert (read.v, read.task) == (1, "ship")
    assert call == envelope.Call((order, "a", "b"), {"rush": True, "weight": 1.5})


def test_an_envelope_is_a_plain_msgpack_map() -> None:
    data = msgspec.msgpack.encode({"v": 1, "task": "wait", "args": [2.5]})
    assert wait.types.decode(envelope.read(data)).args == (2.5,)


def test_an_argument_that_cannot_be_encoded_is_named() -> None:
    with pytest.raises(PayloadError, match=r"argument 'order' of ship\(\) is object, which cannot"):
        App().task()(ship.function).send(object())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"junk", "not a call of a task"),
        (msgspec.msgpack.encode({"v": 0, "task": "wait"}), "version 0, this worker supports 1"),
        (msgspec.msgpack.encode([1, 2]), "not a call of a task"),
    ],
)
def test_a_payload_that_is_not_an_envelope_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(PayloadError, match=text):
        envelope.read(data)


@pytest.mark.parametrize("more", [{"task": "wait"}, {"calls": []}])
def test_an_envelope_of_a_later_version_is_left_to_newer_workers(more: dict[str, Any]) -> None:
    with pytest.raises(UnknownVersion, match="of version 2"):
        envelope.read(msgspec.msgpack.encode({"v": 2, **more}))


@pytest.mark.parametrize(
    ("sending", "text"),
    [
        ({"args": [{"id": "x", "due": "2026-01-02"}]}, "argument 'order' of ship.. cannot be deco"),
        ({"args": [], "kwargs": {"rush": 3}}, "argument 'rush'"),
        ({"args": [], "kwargs": {"weight": "heavy"}}, "argument 'weight'"),
    ],
)
def test_an_argument_of_another_type_is_named(sending: dict[str, Any], text: str) -> None:
    data = msgspec.msgpack.encode({"v": 1, "task": "ship", **sending})
    with pytest.raises(PayloadError, match=text):
        ship.types.decode(envelope.read(data))


def test_more_arguments_than_the_function_takes_are_refused() -> None:
    data = msgspec.msgpack.encode({"v": 1, "task": "wait", "args": [1.0, 2.0]})
    with pytest.raises(PayloadError, match="was sent 2 arguments and takes 1"):
        wait.types.decode(envelope.read(data))
    data = msgspec.msgpack.encode({"v": 1, "task": "wait", "kwargs": {"minutes": 1}})
    with pytest.raises(PayloadError, match="'minutes', which it does not take"):
        wait.types.decode(envelope.read(data))


def test_options_do_not_change_the_task() -> None:
    later = ship.options(delay=dt.timedelta(minutes=1), priority=3, dedup="d").options(timeout=2)
    assert later._options == {"delay": 60.0, "priority": 3, "dedup": "d"} and later._timeout == 2.0
    assert ship._options == {} and ship._timeout is None
    assert later.name == ship.name and later is not ship


def test_a_task_is_pickled_and_copied_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(ship)) is ship
    assert copy.deepcopy(ship) is ship


def test_two_tasks_with_the_same_name_are_refused() -> None:
    with pytest.raises(ValueError, match=r"'ship' is already the name of .*\.ship\(\); give one"):
        app.task(name="ship")(wait.function)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"retry": 3}, TypeError, "retry is int; allowed: Retry"),
        ({"timeout": -1}, ValueError, "timeout is -1"),
        ({"result_ttl": "1"}, TypeError, "result_ttl is str"),
        ({"queue": ""}, TypeError, "queue is ''"),
        ({"name": 3}, TypeError, "name is 3"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        App().task(**options)


@pytest.mark.parametrize("option", ["limit", "group"])
@pytest.mark.parametrize("name", [b"\xff", "\ud800", ""])
def test_a_name_that_is_not_text_is_refused(name: Any, option: str) -> None:
    options: dict[str, Any] = {option: lambda: name}
    with App("memory://") as own:
        send = own.task(**options)(report).send
        with pytest.raises(ValueError, match=option) as caught:
            send()
        assert not isinstance(caught.value, UnicodeError)


def report() -> None: ...


def test_a_task_without_options_needs_no_parentheses() -> None:
    other = App()

    @other.task
    def plain(number: int) -> int:
        return number + 1

    @other.task
    async def waits(number: int) -> int:
        return number

    assert (type(plain), type(waits)) == (Task, AsyncTask)
    assert plain(1) == 2
    assert plain.keys_of(1).keys == frozenset()
    assert set(other.tasks) == {"plain", "waits"}
    with pytest.raises(TypeError, match="str is given; allowed: a function"):
        other.task(cast(Any, "plain"))


def test_only_a_function_can_be_a_task() -> None:
    def generator() -> Any:
        yield 1

    for wrong, text in (
        (3, "int is given"),
        (generator, "is a generator"),
        (ship, "is already a task"),
    ):
        with pytest.raises(TypeError, match=text):
            App().task()(cast(Any, wrong))
    with pytest.raises(ValueError, match="give name="):
        App().task()(lambda: None)


def test_an_app_connects_at_the_first_send() -> None:
    other = App("redis://127.0.0.1:1/0")
    other.task()(wait.function)
    assert other._client is None
    with pytest.raises(ValueError, match=r"connect\(\): url is 'nonsense'"):
        App("nonsense").task()(wait.function).send(1.0)


def test_a_wrong_app_is_refused() -> None:
    with pytest.raises(TypeError, match="retry is int"):
        App(retry=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="url is int"):
        App(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="send_timeout is -1"):
        App(send_timeout=-1)


def test_a_retry_policy_given_to_app_or_task_is_sent_with_the_put() -> None:
    def f() -> None: ...

    def retry_of(app: App, **options: Any) -> Retry | None:
        found: Retry | None = app.task(**options)(f)._ready((), {}).options["retry"]
        return found

    own, tasks = Retry(3), Retry(attempts=None)
    assert retry_of(App()) is None
    assert retry_of(App(retry=own)) is own
    assert retry_of(App(retry=own), retry=tasks) is tasks
    assert retry_of(App(), retry=tasks) is tasks


def test_the_result_of_a_task_without_results_raises() -> None:
    from interlock.app.job import Job

    job: Job[str] = Job(app, "default", "wait", wait.types, 5, False, False)
    with pytest.raises(ResultGone, match="'wait' keeps no results; give it result_ttl"):
        job.result()
    assert repr(job) == "<Job 5 of 'wait'>"


def test_middleware_must_have_a_hook() -> None:
    with pytest.raises(TypeError, match="one or more of the methods before_send"):
        App().use(object())
    with pytest.raises(TypeError, match="Middleware is given"):
        App().use(Middleware)
    with pytest.raises(TypeError, match="int is given"):
        App().on_error(3)  # type: ignore[type-var]


def test_a_task_with_a_template_as_group_names_one_group_for_each_call() -> None:
    app = App("redis://127.0.0.1:1")

    @app.task(keys="account:{account}", group="{tenant}")
    def transfer(account: int, tenant: str) -> None: ...

    assert transfer._ready((7, "acme"), {}).options["group"] == "acme"


def test_a_send_of_a_task_whose_group_is_two_names_is_refused() -> None:
    app = App("redis://127.0.0.1:1")

    @app.task(group=lambda tenant: [tenant, "all"])
    def transfer(tenant: str) -> None: ...

    with pytest.raises(ValueError, match="task 'transfer': group gives 2 names; allowed: one"):
        transfer.send("acme")
