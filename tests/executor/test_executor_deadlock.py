"""A handler of an executor that would wait for itself gets WouldDeadlock (clause 25)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent import futures
from typing import Any

import pytest

from interlock import KeyedExecutor, WouldDeadlock, current_lease
from tests.executor.executors import LONG, Gate, busy


def told(ask: Callable[[], object]) -> str:
    with pytest.raises(WouldDeadlock) as caught:
        ask()
    return str(caught.value)


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_waiting_for_a_call_behind_the_handler_s_own_key_raises(ask: str) -> None:
    with KeyedExecutor(4) as executor:

        def call() -> tuple[str, futures.Future[int]]:
            behind = executor.submit_keyed("a", int)
            return told(getattr(behind, ask)), behind

        text, behind = executor.submit_keyed("a", call).result(LONG)
        assert "message 2" in text and "(2 behind 1)" in text
        assert behind.result(LONG) == 0


def test_waiting_for_a_call_several_hops_behind_the_handler_raises() -> None:
    with KeyedExecutor(4) as executor:

        def call() -> tuple[str, str]:
            executor.submit_keyed(["a", "b"], int)
            executor.submit_keyed(["b", "c"], int)
            reader = executor.keyed("d", shared="c").submit(int)
            last = executor.submit_keyed(["d", "e"], int)
            return told(reader.result), told(last.result)

        near, far = executor.submit_keyed("a", call).result(LONG)
        assert "(4 behind 3 behind 2 behind 1)" in near
        assert "(5 behind 4 behind 3 behind 2 behind 1)" in far


def test_waiting_for_a_call_twenty_thousand_hops_behind_the_handler_raises() -> None:
    with KeyedExecutor(4) as executor:

        def call() -> str:
            hops = [executor.submit_keyed([f"{n}", f"{n + 1}"], int) for n in range(20_000)]
            return told(hops[-1].result)

        text = executor.submit_keyed("0", call).result(LONG)
        assert "(20001 behind 20000 behind " in text
        assert " behind 19981 others behind " in text
        assert text.count(" behind 2 behind 1)") == 1


def test_waiting_for_a_call_behind_a_message_further_back_on_its_key_raises() -> None:
    """Another message is in front; what stands between is what waits for the handler's own."""
    with KeyedExecutor(4) as executor:
        gate = Gate()

        def call() -> str:
            executor.submit_keyed(["a", "b"], int)
            return told(executor.submit_keyed("b", int).result)

        front = executor.submit_keyed("b", gate)
        text = executor.submit_keyed("a", call).result(LONG)
        assert "(4 behind 3 behind 2)" in text
        gate.open.set()
        front.result(LONG)


def test_waiting_for_the_handler_s_own_result_raises() -> None:
    with KeyedExecutor(2) as executor:
        own: list[futures.Future[Any]] = []
        gate = Gate()

        def call() -> str:
            gate()
            return told(own[0].result)

        own.append(executor.submit_keyed("a", call))
        gate.open.set()
        assert "message 1" in own[0].result(LONG)


def test_two_handlers_waiting_for_each_other_raises() -> None:
    # One waits for a message behind the other, which then would wait for a message behind it.
    with KeyedExecutor(4) as executor:
        both = threading.Barrier(2)
        behind: dict[str, futures.Future[Any]] = {}
        texts: list[str] = []

        def call(mine: str, other: str) -> None:
            both.wait(LONG)
            behind[mine] = executor.submit_keyed(mine, str, mine)
            both.wait(LONG)
            try:
                behind[other].result()
            except WouldDeadlock as error:
                texts.append(str(error))

        pairs = [("a", "b"), ("b", "a")]
        calls = [executor.submit_keyed(mine, call, mine, other) for mine, other in pairs]
        futures.wait(calls, LONG)
        assert len(texts) == 1 and "behind" in texts[0]
        assert [behind[key].result(LONG) for key in "ab"] == ["a", "b"]


def test_a_cycle_over_two_executors_raises() -> None:
    texts: list[str] = []

    def ask(future: futures.Future[Any]) -> None:
        # The last one to wait gets the error.
        try:
            future.result()
        except WouldDeadlock as error:
            texts.append(str(error))

    with KeyedExecutor(2) as one, KeyedExecutor(2) as two:

        def outer() -> None:
            ask(two.submit_keyed("b", inner))

        def inner() -> None:
            ask(one.submit_keyed("a", int))

        one.submit_keyed("a", outer).result(LONG)
    assert len(texts) == 1 and "behind" in texts[0]


def test_a_result_that_another_worker_makes_is_waited_for() -> None:
    with KeyedExecutor(2) as executor:

        def call() -> int:
            return executor.submit_keyed("b", abs, -5).result()

        assert executor.submit_keyed("a", call).result(LONG) == 5


def test_a_wait_with_a_timeout_is_not_a_deadlock() -> None:
    with KeyedExecutor(1) as executor:

        def call() -> str:
            behind = executor.submit_keyed("a", int)
            for timeout in (0, 0.01):
                with pytest.raises(futures.TimeoutError):
                    behind.result(timeout)
            return "continued"

        assert executor.submit_keyed("a", call).result(LONG) == "continued"


def test_a_finished_result_is_returned_without_a_deadlock_check() -> None:
    with KeyedExecutor(1) as executor:
        done = executor.submit_keyed("a", int)
        assert executor.submit_keyed("a", done.result).result(LONG) == 0


def test_outside_a_handler_no_wait_is_a_deadlock() -> None:
    with KeyedExecutor(1) as executor, busy(executor, "a") as (gate,):
        behind = executor.submit_keyed("a", int)
        threading.Timer(0, gate.open.set).start()
        assert behind.result() == 0


# -- No worker left -------------------------------------------------------------------------------


def test_a_wait_by_the_only_worker_raises() -> None:
    with KeyedExecutor(1) as executor:

        def call() -> tuple[str, futures.Future[int]]:
            other = executor.submit(int)
            return told(other.result), other

        text, other = executor.submit(call).result(LONG)
        assert "all 1 workers" in text and executor.queue.name in text
        assert other.result(LONG) == 0


def test_a_wait_by_the_last_free_worker_raises() -> None:
    with KeyedExecutor(3) as executor:
        together = threading.Barrier(3)

        def call(_: int) -> bool:
            together.wait(LONG)
            try:
                return executor.submit(int).result() == 0
            except WouldDeadlock:
                return False

        # One gets the error, returns, and produces what the others wait for.
        assert sorted(executor.map(call, range(3))) == [False, True, True]


def test_workers_reserved_for_unkeyed_calls_do_not_prevent_a_deadlock_of_keyed_ones() -> None:
    with KeyedExecutor(3, unkeyed_workers=2) as executor:

        def call() -> tuple[str, int]:
            return told(executor.submit_keyed("b", int).result), executor.submit(int).result()

        text, unkeyed = executor.submit_keyed("a", call).result(LONG)
        assert "all 3 workers" in text and unkeyed == 0


def test_a_submit_into_a_full_executor_that_only_the_caller_drains_raises() -> None:
    with KeyedExecutor(1, maxsize=2) as executor:

        def call() -> str:
            executor.submit(int)
            return told(lambda: executor.submit(int))

        assert "is full" in executor.submit_keyed("a", call).result(LONG)


def test_a_submit_into_a_full_executor_waits_if_another_worker_makes_room() -> None:
    with KeyedExecutor(2, maxsize=2) as executor:
        other = Gate()
        first = executor.submit_keyed("b", other)
        assert other.running.wait(LONG)

        def call() -> int:
            threading.Timer(0, other.open.set).start()
            return executor.submit_keyed("c", abs, -7).result()

        assert executor.submit_keyed("a", call).result(LONG) == 7
        first.result(LONG)


def test_the_last_worker_to_wait_for_room_gets_would_deadlock() -> None:
    with KeyedExecutor(2, maxsize=2) as executor:
        together = threading.Barrier(2)

        def call(_: int) -> bool:
            together.wait(LONG)
            try:
                executor.submit(int)
            except WouldDeadlock:
                return False
            return True

        assert sorted(executor.map(call, range(2))) == [False, True]


def test_a_submit_into_an_executor_filled_by_what_waits_for_the_handler_raises() -> None:
    """The other worker is free, and nothing that it could run."""
    with KeyedExecutor(2, maxsize=2) as executor:

        def call() -> str:
            executor.submit_keyed("a", int)
            return told(lambda: executor.submit(int))

        assert "waits for the message that this handler has" in (
            executor.submit_keyed("a", call).result(LONG)
        )


# -- Limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [False, True])
def test_waiting_for_a_call_that_needs_the_handler_s_own_slot_raises(pooled: bool) -> None:
    with (
        futures.ThreadPoolExecutor(4) as pool,
        KeyedExecutor(4, limits={"bank": 1}, pool=pool if pooled else None) as executor,
    ):
        bank = executor.keyed(limit="bank")

        def call() -> tuple[str, str]:
            executor.keyed("a", limit="bank").submit(int)
            behind = executor.submit_keyed("a", int)
            return told(bank.submit(int).result), told(behind.result)

        direct, behind = bank.submit(call).result(LONG)
    assert "which waits for the handler's own (4 behind 1 on limit bank)" in direct
    assert "(3 behind 2 behind 1 on limit bank)" in behind


def test_the_last_of_the_handlers_that_have_all_slots_to_wait_for_one_raises() -> None:
    with KeyedExecutor(6, limits={"bank": 2}) as executor:
        both = threading.Barrier(2)
        texts: list[str] = []

        def call(_: int) -> bool:
            both.wait(LONG)
            try:
                return executor.keyed(limit=["bank", "other"]).submit(int).result() == 0
            except WouldDeadlock as error:
                texts.append(str(error))
                return False

        assert sorted(executor.keyed(limit="bank").map(call, range(2))) == [False, True]
    assert len(texts) == 1 and " behind 1 and 2 on limit bank)" in texts[0]


def others_run(executor: KeyedExecutor) -> None:
    """Lets handlers that are about to wait begin to, most likely."""
    for _ in range(50):
        executor.submit(int).result(LONG)


def test_a_slot_that_another_call_frees_is_waited_for() -> None:
    with KeyedExecutor(3, limits={"bank": 2}) as executor:
        bank, other, begun = executor.keyed(limit="bank"), Gate(), threading.Event()

        def call() -> int:
            waits = bank.submit(abs, -7)
            begun.set()
            return waits.result()

        calls: list[futures.Future[Any]] = [bank.submit(other), bank.submit(call)]
        assert other.running.wait(LONG) and begun.wait(LONG)
        others_run(executor)
        other.open.set()
        assert [one.result(LONG) for one in calls] == [None, 7]


def test_a_slot_of_a_handler_that_waits_for_a_running_call_is_waited_for() -> None:
    """Both handlers of the limit wait, and one of them continues."""
    with KeyedExecutor(4, limits={"bank": 2}) as executor:
        bank, running = executor.keyed(limit="bank"), Gate()
        runs, both = executor.submit(running), threading.Barrier(3)

        def other() -> None:
            both.wait(LONG)
            runs.result()

        def call() -> int:
            waits = bank.submit(abs, -7)
            both.wait(LONG)
            return waits.result()

        calls: list[futures.Future[Any]] = [bank.submit(other), bank.submit(call)]
        both.wait(LONG)
        others_run(executor)
        running.open.set()
        assert [one.result(LONG) for one in calls] == [None, 7]


def test_a_cycle_through_a_key_and_a_limit_of_several_slots_raises() -> None:
    """Two have the slots; one waits for a call of the limit, the other for one behind the first."""
    with KeyedExecutor(6, limits={"bank": 2}) as executor:
        both = threading.Barrier(2)
        texts: list[str] = []

        def ask(submit: Callable[[], futures.Future[int]]) -> None:
            both.wait(LONG)
            try:
                submit().result()
            except WouldDeadlock as error:
                texts.append(str(error))

        bank = executor.keyed(limit="bank")
        one = executor.keyed("a", limit="bank").submit(ask, lambda: bank.submit(int))
        two = bank.submit(ask, lambda: executor.submit_keyed("a", int))
        assert (one.result(LONG), two.result(LONG)) == (None, None)
    assert len(texts) == 1, texts


def test_a_limit_whose_other_slot_is_at_a_worker_that_waits_for_a_worker_raises() -> None:
    """Each check alone sees a way out: a free slot, a free worker."""
    with KeyedExecutor(3, unkeyed_workers=2, limits={"bank": 2}) as executor:
        together = threading.Barrier(2)
        texts: list[str] = []

        def ask(submit: Callable[[], futures.Future[int]]) -> None:
            together.wait(LONG)
            try:
                submit().result()
            except WouldDeadlock as error:
                texts.append(str(error))

        bank = executor.keyed(limit="bank")
        # The only worker for calls with keys, and one of the others.
        calls = [
            executor.keyed("a", limit="bank").submit(ask, lambda: bank.submit(int)),
            bank.submit(ask, lambda: executor.submit_keyed("b", int)),
        ]
        assert [call.result(LONG) for call in calls] == [None, None]
    assert len(texts) == 1, texts


def test_a_submit_into_an_executor_filled_by_calls_of_the_handler_s_limit_raises() -> None:
    with KeyedExecutor(2, maxsize=3, limits={"bank": 1}) as executor:
        bank = executor.keyed(limit="bank")

        def call() -> str:
            for _ in range(2):
                bank.submit(int)
            return told(lambda: executor.submit(int))

        assert "waits for the message that this handler has" in bank.submit(call).result(LONG)


def test_a_wait_for_a_slot_with_a_timeout_is_not_a_deadlock() -> None:
    with KeyedExecutor(2, limits={"bank": 1}) as executor:
        bank = executor.keyed(limit="bank")

        def call() -> str:
            with pytest.raises(futures.TimeoutError):
                bank.submit(int).result(0.01)
            return "continued"

        assert bank.submit(call).result(LONG) == "continued"


# -- In a callback --------------------------------------------------------------------------------


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("ask", ["result", "shutdown", "join"])
def test_a_done_callback_that_waits_for_a_later_call_raises(ask: str, pooled: bool) -> None:
    # It runs before the next call on its key.
    with futures.ThreadPoolExecutor(4) as pool:
        executor = KeyedExecutor(4, pool=pool if pooled else None)
        gate = Gate()
        first = executor.submit_keyed("a", gate)
        behind = executor.submit_keyed("a", int)
        asks: dict[str, Callable[[], object]] = {
            "result": behind.result,
            "shutdown": executor.shutdown,
            "join": executor.queue.join,
        }
        said: futures.Future[str] = futures.Future()

        def call_back(_: futures.Future[Any]) -> None:
            try:
                said.set_result(repr(asks[ask]()))
            except WouldDeadlock as error:
                said.set_result(str(error))

        first.add_done_callback(call_back)
        gate.open.set()
        text = said.result(LONG)
        assert "(2 behind 1)" in text if ask == "result" else "handling message 1" in text
        assert behind.result(LONG) == 0
        executor.shutdown()


def test_a_done_callback_that_waits_on_the_only_worker_raises() -> None:
    with KeyedExecutor(1) as executor:
        gate = Gate()
        first = executor.submit(gate)
        said: futures.Future[str] = futures.Future()
        first.add_done_callback(lambda _: said.set_result(told(executor.submit(int).result)))
        gate.open.set()
        assert "all 1 workers" in said.result(LONG)


def test_a_done_callback_may_wait_for_other_workers_and_has_no_lease() -> None:
    with KeyedExecutor(2) as executor:
        gate = Gate()
        first = executor.submit_keyed("a", gate)
        said: futures.Future[int] = futures.Future()

        def call_back(_: futures.Future[Any]) -> None:
            with pytest.raises(LookupError):
                current_lease()
            said.set_result(executor.submit_keyed("b", abs, -5).result())

        first.add_done_callback(call_back)
        gate.open.set()
        assert said.result(LONG) == 5


# -- Its own end ----------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_a_handler_that_shuts_down_its_own_executor_raises(workers: int) -> None:
    executor = KeyedExecutor(workers)
    text = executor.submit_keyed("a", lambda: told(executor.shutdown)).result(LONG)
    assert "message 1" in text
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)
    executor.shutdown()


def test_a_handler_that_joins_its_own_queue_raises() -> None:
    with KeyedExecutor(2) as executor:
        text = executor.submit_keyed("a", lambda: told(executor.queue.join)).result(LONG)
        assert "message 1" in text


def test_a_wait_of_a_revoked_handler_does_not_count_in_deadlock_detection() -> None:
    with KeyedExecutor(2) as executor:
        executor.queue.pause("paused")
        waits = threading.Event()
        ended = threading.Event()

        def hung() -> None:
            inner = executor.submit_keyed("paused", int)
            waits.set()
            inner.result()
            ended.set()

        def call() -> int:
            return executor.submit_keyed("b", int).result()

        future: Any = executor.submit_keyed("a", hung)
        assert waits.wait(LONG)
        assert executor.queue.revoke(future.id, then="skip")
        # Only one of the counted workers waits now.
        assert executor.submit_keyed("a", call).result(LONG) == 0
        executor.queue.resume("paused")
        assert ended.wait(LONG)
