"""Single puts that come while a call is in flight are sent together, and answered one by one."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from interlock import Empty, EngineUnavailable, Full, InterlockError, ShutDown, connect
from interlock.app import App
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.client.requests.coalesced_puts import Send, next_call
from interlock.client.wire.messages import Message
from interlock.runtime.limits import MAX_BATCH, MAX_BATCH_KEYS, MAX_PAYLOAD
from tests import seeds
from tests.client.connection.proxy import Proxy, cutting, proxied
from tests.support import put_together, until

LONG = 30.0


class Net:
    """A client behind a proxy that counts its puts, and holds the first while `gate` is closed, the
    second while `second` is."""

    def __init__(self, url: str, client: Client, proxy: Proxy) -> None:
        self.url = url
        self.client = client
        self.proxy = proxy
        self.name = uuid.uuid4().hex
        self.gate = threading.Event()
        self.reached = threading.Event()
        self.second = threading.Event()
        self.second_reached = threading.Event()
        self.calls = 0
        self.gate.set()
        self.second.set()
        proxy.requests = self._request

    def _request(self, data: bytes) -> bytes:
        if b"il1_put" in data:
            self.calls += data.count(b"il1_put")
            reached, gate = self.reached, self.gate
            if self.calls == 2:
                reached, gate = self.second_reached, self.second
            reached.set()
            gate.wait(LONG)
        return data

    def close(self) -> None:
        self.reached.clear()
        self.gate.clear()
        self.calls = 0

    def payloads(self) -> list[Any]:
        """All payloads of the queue, in its order."""
        found = []
        with connect(self.url) as client:
            queue = client.queue(self.name)
            with contextlib.suppress(Empty):
                while True:
                    for lease in queue.get_many(1000, block=False):
                        found.append(lease.payload)
                        lease.ack()
        return found


@pytest.fixture(params=["redis", "hub"])
def net(request: pytest.FixtureRequest) -> Iterator[Net]:
    url = request.getfixturevalue(f"{request.param}_url")
    scheme, _, place = url.partition("://")
    host, _, port = place.rpartition(":")
    with (
        proxied(host, int(port)) as proxy,
        connect(f"{scheme}://127.0.0.1:{proxy.port}?timeout=20") as client,
    ):
        client.queue("first").put(0)
        made = Net(url, client, proxy)
        yield made
        made.gate.set()
        made.second.set()


Put = Callable[[Any], Any]


def noted(number: int) -> None: ...


def together(net: Net, puts: list[Put], during: Callable[[Any], None] = lambda queue: None,
             **options: Any) -> list[Any]:  # fmt: skip
    """Make the puts as tasks while one is in flight; return what each returned or raised."""

    async def main() -> list[Any]:
        async with net.client.aio as client:
            queue = client.queue(net.name, **options)
            await queue.put("warm")
            net.close()
            first = asyncio.create_task(queue.put("first"))
            await asyncio.to_thread(net.reached.wait, LONG)
            rest = [asyncio.create_task(put(queue)) for put in puts]
            await asyncio.sleep(0)
            during(rest)
            net.gate.set()
            await first
            return await asyncio.gather(*rest, return_exceptions=True)

    return asyncio.run(main())


def skip_on_hub(net: Net) -> None:
    if net.url.startswith("interlock"):
        pytest.skip("the puts of threads into a hub are sent together only with linger=")


def threads_together(net: Net, puts: list[Put], **options: Any) -> list[Future[Any]]:
    """Make the puts on threads, in this order, while one is in flight, and leave it there."""
    skip_on_hub(net)
    queue = net.client.queue(net.name, **options)
    queue.put("warm")
    net.close()
    pool = ThreadPoolExecutor(len(puts) + 1)
    found = [pool.submit(queue.put, "first")]
    assert net.reached.wait(LONG)
    for n, put in enumerate(puts, 1):
        found.append(pool.submit(put, queue))
        until(lambda n=n: len(gathered(queue)) == n)  # type: ignore[misc]
    pool.shutdown(wait=False)
    return found


def gathered(queue: RemoteQueue[Any]) -> Any:
    (puts,) = queue._handle.thread_puts.values()
    return puts._pending


def putting(payload: Any, **options: Any) -> Put:
    return lambda queue: queue.put(payload, keys="k", **options)


def now(payload: Any, **options: Any) -> Put:
    return lambda queue: queue.put_nowait(payload, keys="k", **options)


def test_puts_of_tasks_that_come_during_a_call_are_one_call_in_their_order(net: Net) -> None:
    ids = together(net, [putting(n) for n in range(50)])
    assert ids == sorted(ids) and len(set(ids)) == 50
    assert net.calls == 2
    assert net.payloads() == ["warm", "first", *range(50)]


def test_puts_of_threads_that_come_during_a_call_are_one_call_in_their_order(net: Net) -> None:
    found = threads_together(net, [putting(n) for n in range(10)])
    net.gate.set()
    ids = [one.result(LONG) for one in found]
    assert ids == sorted(ids) and len(set(ids)) == 11
    assert net.calls == 2
    assert net.payloads() == ["warm", "first", *range(10)]


def test_each_put_keeps_its_own_options(net: Net) -> None:
    puts = [
        lambda queue: queue.put_known("a", dedup="d"),
        lambda queue: queue.put_known("b", dedup="d"),
        lambda queue: queue.put_known("c", priority=5),
        lambda queue: queue.put_known("d", delay=3600),
    ]
    first, again, urgent, late = together(net, puts)
    assert (first.known, again.known, urgent.known) == (False, True, False)
    assert first.id == again.id < urgent.id < late.id
    assert net.calls == 2
    assert net.payloads() == ["c", "warm", "first", "a"]


def test_a_message_that_the_engine_refuses_fails_alone_and_the_others_keep_their_order(
    net: Net,
) -> None:
    puts = [putting(0), putting("x" * 300), putting(1), putting("y" * 300), putting(2)]
    found = together(net, puts, maxbytes=200)
    assert [isinstance(one, ValueError) for one in found] == [False, True, False, True, False]
    assert found[1] is not found[3]
    assert found[0] < found[2] < found[4]
    assert net.payloads() == ["warm", "first", 0, 1, 2]


def test_a_message_that_cannot_be_encoded_fails_in_its_caller(net: Net) -> None:
    good, bad, key = together(net, [putting(1), putting(object()), lambda q: q.put(2, keys="")])
    assert isinstance(good, int)
    assert isinstance(bad, InterlockError) and isinstance(key, ValueError)
    assert net.payloads() == ["warm", "first", 1]


def test_a_full_queue_refuses_those_beyond_its_room(net: Net) -> None:
    found = together(net, [now(n) for n in range(8)], maxsize=5)
    assert [isinstance(one, Full) for one in found] == [False] * 3 + [True] * 5
    assert found[:3] == sorted(found[:3])
    assert len({id(one) for one in found[3:]}) == 5
    assert net.payloads() == ["warm", "first", 0, 1, 2]


def test_a_put_that_waits_for_room_holds_up_no_other(net: Net) -> None:
    async def main() -> None:
        async with net.client.aio as client:
            queue = client.queue(net.name, maxbytes=100)
            await queue.put("x" * 50)
            large = asyncio.create_task(queue.put("y" * 60))
            small = asyncio.create_task(queue.put("z"))
            assert await small
            with pytest.raises(Full):
                await queue.put("w" * 60, timeout=0.01)
            assert not large.done()
            await (await queue.get()).ack()
            assert await large

    asyncio.run(main())


def test_a_put_cancelled_before_its_call_is_not_made_and_the_others_are(net: Net) -> None:
    found = together(net, [putting(n) for n in range(4)], lambda tasks: tasks[1].cancel())
    assert isinstance(found[1], asyncio.CancelledError)
    assert net.payloads() == ["warm", "first", 0, 2, 3]


def test_a_put_cancelled_during_its_call_leaves_the_others_in_it(net: Net) -> None:
    async def main() -> list[Any]:
        async with net.client.aio as client:
            queue = client.queue(net.name)
            await queue.put("warm")
            net.close()
            first = asyncio.create_task(queue.put("first"))
            await asyncio.to_thread(net.reached.wait, LONG)
            rest = [asyncio.create_task(queue.put(n)) for n in range(4)]
            await asyncio.sleep(0)
            net.second.clear()
            net.gate.set()
            await first
            await asyncio.to_thread(net.second_reached.wait, LONG)
            rest[1].cancel()
            await asyncio.wait([rest[1]])
            net.second.set()
            return await asyncio.gather(*rest, return_exceptions=True)

    found = asyncio.run(main())
    assert isinstance(found[1], asyncio.CancelledError)
    assert [type(one) for one in (found[0], *found[2:])] == [int] * 3
    assert [one for one in net.payloads() if one != 1] == ["warm", "first", 0, 2, 3]


@pytest.mark.parametrize("keep", [0, 3])
def test_puts_whose_reply_was_lost_are_put_once(net: Net, keep: int) -> None:
    lost = cutting(b"*", keep=keep)
    seen = []

    def second(data: bytes) -> bytes | None:
        # The first reply is that of the put in flight.
        seen.append(data)
        return data if len(seen) == 1 else lost(data)

    def spoil(_: Any) -> None:
        net.proxy.replies = second

    ids = together(net, [putting(n) for n in range(20)], spoil)
    assert ids == sorted(ids) and len(set(ids)) == 20
    assert net.calls == 3
    assert net.payloads() == ["warm", "first", *range(20)]


def test_puts_behind_a_call_that_is_not_answered_are_given_up_in_their_own_time(net: Net) -> None:
    async def main() -> list[Any]:
        async with net.client.aio as client:
            queue = client.queue(net.name)
            await queue.put("warm")
            net.close()
            first = asyncio.create_task(queue.put("first"))
            await asyncio.to_thread(net.reached.wait, LONG)
            sent = [asyncio.create_task(queue._sent(n, timeout=0.2)) for n in range(3)]
            found = await asyncio.gather(*sent, return_exceptions=True)
            assert not first.done()
            net.gate.set()
            await first
            return found

    found = asyncio.run(main())
    assert [(type(one), one.unknown) for one in found] == [(EngineUnavailable, False)] * 3
    assert net.payloads() == ["warm", "first"]


def test_a_thread_behind_a_call_that_is_not_answered_gives_up_in_its_own_time(net: Net) -> None:
    skip_on_hub(net)
    queue = net.client.queue(net.name)
    queue.put("warm")
    net.close()
    with ThreadPoolExecutor() as pool:
        first = pool.submit(queue.put, "first")
        assert net.reached.wait(LONG)
        with pytest.raises(EngineUnavailable, match=r"not put in 0\.2 s") as caught:
            queue._sent("late", timeout=0.2)
        assert not caught.value.unknown
        net.gate.set()
        assert first.result(LONG)
    assert net.payloads() == ["warm", "first"]


@pytest.mark.parametrize("what", ["handle", "client"])
def test_closing_ends_the_puts_that_were_not_sent(net: Net, what: str) -> None:
    queue = net.client.queue(net.name)
    kept: list[RemoteQueue[Any]] = []

    def put(queue: RemoteQueue[Any]) -> Any:
        kept.append(queue)
        return queue.put(1)

    found = threads_together(net, [put] * 3)
    if what == "client":
        net.client.close()
    else:
        kept[0].close()
    errors = [one.exception(LONG) for one in found]
    assert [type(one) for one in errors] == [ShutDown] * 4
    assert len({id(one) for one in errors}) == 4, "each caller raises its own"
    net.gate.set()
    if what == "handle":
        assert queue.put("after")


def test_closing_ends_the_puts_of_tasks_that_were_not_sent(net: Net) -> None:
    async def main() -> list[Any]:
        async with net.client.aio as client:
            queue = client.queue(net.name)
            await queue.put("warm")
            net.close()
            first = asyncio.create_task(queue.put("first"))
            await asyncio.to_thread(net.reached.wait, LONG)
            rest = [asyncio.create_task(queue.put(n)) for n in range(3)]
            await asyncio.sleep(0)
            await queue.close()
            return await asyncio.gather(first, *rest, return_exceptions=True)

    assert [isinstance(one, ShutDown) for one in asyncio.run(main())] == [True] * 4
    net.gate.set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_child_of_a_fork_during_a_call_puts_by_itself(net: Net) -> None:
    kept: list[RemoteQueue[Any]] = []

    def put(queue: RemoteQueue[Any]) -> Any:
        kept.append(queue)
        return queue.put(1, keys="k")

    found = threads_together(net, [put])
    net.gate.set()
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if kept[0].put("child") else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert [isinstance(one.result(LONG), int) for one in found] == [True] * 2
    assert sorted(map(str, net.payloads())) == ["1", "child", "first", "warm"]


def test_a_put_in_the_middle_of_a_put_of_the_same_thread_is_made(net: Net) -> None:
    """As a signal handler makes, or a destructor."""
    skip_on_hub(net)
    queue = net.client.queue(net.name)
    queue.put("warm")
    (puts,) = queue._handle.thread_puts.values()
    carry = puts._carry
    inner: list[Any] = []

    def nested(sends: list[Send]) -> None:
        if not inner:
            inner.append(None)
            # Somebody else waits meanwhile.
            waiting = Send(20, Message(b"\x07"), None, False)
            waiting.done = threading.Lock()
            waiting.done.acquire()
            puts._pending.append(waiting)
            inner.append(queue.put("nested"))
        carry(sends)

    puts._carry = nested
    assert queue.put("outer") > inner[1]
    until(lambda: queue.stats().puts == 4)
    assert net.payloads()[1:3] == ["nested", "outer"]


def test_a_lone_put_is_sent_at_once_by_its_caller(net: Net) -> None:
    skip_on_hub(net)
    queue = net.client.queue(net.name)
    net.calls = 0
    for n in range(20):
        queue.put(n)
    assert net.calls == 20
    (puts,) = queue._handle.thread_puts.values()
    assert not puts._thread


@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_linger_sends_what_comes_within_it_in_one_call(net: Net, face: str) -> None:
    queue = net.client.queue(net.name, linger=2)
    net.calls = 0
    ids = put_together(queue, face, 5)
    assert len(set(ids)) == 5
    assert net.calls == 1


def test_linger_ends_when_a_call_is_full(net: Net) -> None:
    async def main() -> list[int]:
        async with net.client.aio as client:
            queue = client.queue(net.name, linger=3600)
            return await asyncio.gather(*(queue.put(n) for n in range(MAX_BATCH)))

    assert len(set(asyncio.run(main()))) == MAX_BATCH


@pytest.mark.parametrize("face", ["threads", "tasks"])
def test_a_put_without_time_for_linger_is_sent_at_once(net: Net, face: str) -> None:
    queue = net.client.queue(net.name, linger=3600)
    if face == "threads":
        assert queue._sent(1, timeout=20)
    else:
        assert asyncio.run(queue.aio._sent(1, timeout=20))
    assert net.payloads() == [1]


def test_linger_of_an_app_sends_the_calls_of_tasks_that_come_within_it_in_one_call(
    net: Net,
) -> None:
    with App(net.client.url, send_timeout=60, linger=2) as app:
        task = app.task(queue=net.name)(noted)
        net.calls = 0
        with ThreadPoolExecutor(5) as pool:
            jobs = list(pool.map(task.send, range(5)))
    assert len({job.id for job in jobs}) == 5
    assert net.calls == 1


def test_linger_refuses_what_is_not_a_time(net: Net) -> None:
    with pytest.raises(ValueError, match=r"App\(\): linger is -1"):
        App(linger=-1)
    with pytest.raises(ValueError, match="linger is -1"):
        net.client.queue(net.name, linger=-1)


@pytest.mark.parametrize(
    ("messages", "sizes"),
    [
        ([Message(b"p")] * (MAX_BATCH + 1), [MAX_BATCH, 1]),
        ([Message(b"p", (b"k",) * 1500)] * 5, [2, 2, 1]),
        ([Message(b"p", (b"k",) * MAX_BATCH_KEYS)] * 2, [1, 1]),
        ([Message(b"p", (), (b"k",) * 3000), Message(b"p", (b"k",) * 2000)], [1, 1]),
        ([Message(b"x" * (MAX_PAYLOAD // 4))] * 9, [4, 4, 1]),
        ([Message(b"x" * MAX_PAYLOAD), Message(b"p")], [1, 1]),
    ],
    ids=["messages", "keys", "most keys", "shared keys", "bytes", "most bytes"],
)
def test_a_call_carries_no_more_than_the_wire_allows(
    messages: list[Message], sizes: list[int]
) -> None:
    pending = collections.deque(Send(1, message, None, False) for message in messages)
    found = []
    while pending:
        found.append(len(next_call(pending)))
    assert found == sizes


def test_random_puts_of_many_callers_are_each_put_once_in_their_callers_order(net: Net) -> None:
    """Some are refused, some wait for room, some connections are cut; a consumer makes room."""
    rng = random.Random(seeds.seed())
    queue = net.client.queue(net.name, maxsize=40, maxbytes=2_000)
    done = threading.Event()
    handled: list[tuple[int, int]] = []

    def consume() -> None:
        while not (done.is_set() and not queue.qsize()):
            try:
                lease = queue.get(timeout=0.05)
            except InterlockError:
                continue
            handled.append(tuple(lease.payload[:2]))
            lease.ack()

    def caller(me: int, seed: int) -> list[tuple[int, int]]:
        own, put = random.Random(seed), []
        for n in range(60):
            way = own.random()
            try:
                if way < 0.1:
                    queue.put([me, n, "x" * 3_000], keys="k")
                elif way < 0.4:
                    queue.put_nowait([me, n], keys="k")
                else:
                    queue.put([me, n], keys="k", timeout=20)
            except (Full, ValueError):
                continue
            assert way >= 0.1
            put.append((me, n))
        return put

    async def tasks(seed: int) -> list[list[tuple[int, int]]]:
        async with connect(net.url) as client:
            other = client.queue(net.name)

            async def one(me: int) -> list[tuple[int, int]]:
                own, put = random.Random(seed + me), []
                for n in range(30):
                    try:
                        if own.random() < 0.5:
                            await other.put_nowait([me, n], keys="k")
                        else:
                            await other.put([me, n], keys="k")
                    except Full:
                        continue
                    put.append((me, n))
                return put

            return await asyncio.gather(*(one(me) for me in range(100, 116)))

    queue.put("warm")
    queue.get().ack()
    consumer = threading.Thread(target=consume)
    consumer.start()
    with ThreadPoolExecutor(10) as pool:
        callers = [pool.submit(caller, me, rng.randrange(2**32)) for me in range(8)]
        looped = pool.submit(asyncio.run, tasks(rng.randrange(2**32)))
        for _ in range(5):
            # A call whose reply is lost is repeated with its number.
            net.proxy.replies = cutting(b"*", keep=rng.choice([0, 3]))
            until(lambda: net.proxy.replies(b"*") == b"*")
        sequences = [one.result(LONG) for one in callers] + looped.result(LONG)
    done.set()
    consumer.join(LONG)
    assert not consumer.is_alive()
    assert sorted(handled) == sorted(one for some in sequences for one in some)
    for some in sequences:
        own = [one for one in handled if some and one[0] == some[0][0]]
        assert own == some
