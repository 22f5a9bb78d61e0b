"""The client on a real Redis: what is not the contract's, and not the network's."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

import interlock
from interlock import (
    EngineUnavailable,
    JobFailed,
    OptionsMismatch,
    PayloadError,
    ResultGone,
    Retry,
    ShutDown,
    connect,
    current_lease,
)
from interlock.client.faces.batch import LeasedBatch, begin_exchange, settle
from interlock.client.faces.client import Client
from interlock.client.faces.queue import RemoteQueue
from interlock.client.lua.library import Library
from interlock.client.requests.lease_renewal import Grant
from tests.hub.protocol.certificates import Authority
from tests.hub.servers import needs_hub, redis_server

AT_ONCE = Retry(attempts=None, first=0)


class Order(msgspec.Struct):
    account: str
    amount: int


@pytest.fixture
def client(engine_port: int) -> Iterator[Client]:
    with connect(f"redis://127.0.0.1:{engine_port}") as opened:
        yield opened


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def queue(client: Client, name: str) -> RemoteQueue[Any]:
    return client.queue(name)


# -- Payloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ["msgpack", "json", "pickle"])
def test_a_payload_is_returned_as_its_type(client: Client, name: str, codec: Any) -> None:
    queue = client.queue(name, Order, codec=codec)
    queue.put(Order("a", 5), keys="a")
    with queue.get() as order:
        assert order == Order("a", 5)


def test_a_pickled_payload_needs_no_type(client: Client, name: str) -> None:
    queue = client.queue(name, codec="pickle")
    queue.put({"a": {1}})
    with queue.get() as found:
        assert found == {"a": {1}}


@pytest.mark.parametrize(("kind", "payload"), [(bytes, b"\x00raw"), (str, "raw é")])
def test_bytes_and_str_are_stored_as_they_are(
    client: Client, name: str, kind: Any, payload: Any, connection: redis.Redis
) -> None:
    client.queue(name, kind).put(payload)
    reply: Any = connection.fcall("il1_lease", 1, f"il:{{{name}}}", "", 0, 0, 1, 1000, "any")
    assert reply[7] == (payload if kind is bytes else payload.encode())


def test_a_payload_of_another_type_is_a_failed_attempt_and_not_lost(
    client: Client, name: str
) -> None:
    client.queue(name, retry=Retry(attempts=2, first=0)).put({"account": 7})
    orders = client.queue(name, Order)
    for _ in range(2):
        with pytest.raises(PayloadError, match="Order") as caught:
            orders.get()
    (letter,) = orders.dead_letters()
    assert letter.id == caught.value.id
    assert letter.attempts == 2 and "PayloadError" in letter.error


def test_one_bad_payload_of_a_batch_does_not_affect_the_others(client: Client, name: str) -> None:
    client.queue(name, retry=Retry(attempts=1)).put_many([{"account": 7}, Order("a", 1)])
    (lease,) = client.queue(name, Order).get_many(5)
    assert lease.payload == Order("a", 1)
    lease.ack()
    assert client.queue(name).stats().dead == 1


def test_a_payload_that_cannot_be_encoded_is_refused_and_named(queue: RemoteQueue[Any]) -> None:
    with pytest.raises(PayloadError, match=r"put\(\): payload is object"):
        queue.put(object())
    with pytest.raises(PayloadError, match="1048576"):
        queue.put(b"x" * 1_048_577)
    assert queue.stats().puts == 0


# -- Options --------------------------------------------------------------------------------------


def test_a_queue_declared_with_other_options_raises_a_mismatch_naming_them(
    client: Client, engine_port: int, name: str
) -> None:
    client.queue(name, maxsize=5).put(1)
    with connect(f"redis://127.0.0.1:{engine_port}") as other:
        renewed = other.queue(name, maxsize=6, dedup_window=300)
        with pytest.raises(OptionsMismatch) as caught:
            renewed.put(1)
        said = f"{name!r} was declared with maxsize=5, and this program declares maxsize=6"
        assert said in str(caught.value)
        assert f"`interlock queue configure {name} --maxsize 6`" in str(caught.value)
        # A program that declares nothing takes it as it is, and so does one that declares other
        # options equally.
        assert other.queue(name).put(2)
        assert other.queue(name, maxdead=10_000).put(3)
        # The advice of the error resolves it.
        assert renewed.configure(maxsize=6)["maxsize"] == 6
        assert renewed.put(4)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ({"dedup_window": 1.5}, {"dedup_window": 300}, "dedup_window=1.5, .* dedup_window=300;"),
        ({"retry": Retry(4)}, {"retry": Retry(None)}, "configure.retry=Retry.attempts=None, ...."),
        ({"retry": Retry(factor=3)}, {"retry": Retry()}, "factor=3.0, .* --factor 2.0`"),
        ({"retry": Retry(then="hold")}, {"retry": Retry()}, "then='hold', .* --then dead`"),
        ({"retry": Retry(jitter=False)}, {"retry": Retry()}, "jitter=False, .* --jitter true`"),
    ],
)
def test_a_mismatch_uses_the_names_and_units_of_the_python_api(
    client: Client, name: str, before: Any, after: Any, words: str
) -> None:
    client.queue(name, **before).put(1)
    with pytest.raises(OptionsMismatch, match=words):
        client.queue(name, **after).put(2)


def test_a_configured_queue_is_declared_again_if_its_engine_lost_it(
    client: Client, name: str
) -> None:
    queue = client.queue(name, maxsize=5)
    queue.put(1)
    queue.configure(maxsize=6, maxdead=7)
    assert queue.drop(force=True)
    queue.put(1)
    assert queue.configure()["maxsize"] == 6


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"maxzise": 5}, "maxzise.*maxsize"),
        ({"codec": "xml"}, "codec is 'xml'"),
        ({"durability": "perhaps"}, "durability is 'perhaps'"),
        ({"keys": "account"}, "keys is str"),
        ({"lease": 0}, "lease is 0"),
    ],
)
def test_a_wrong_option_is_named(client: Client, options: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        client.queue("orders", **options)


@pytest.mark.parametrize("wrong", ["", "a{b}", "x" * 513, 7])
def test_a_wrong_name_is_refused(client: Client, wrong: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="name is"):
        client.queue(wrong)


# -- Results --------------------------------------------------------------------------------------


def test_waiting_for_a_result_returns_it_decoded(queue: RemoteQueue[Any]) -> None:
    id = queue.put(1, result_ttl=60)
    with pytest.raises(TimeoutError):
        queue.result(id, timeout=0.01)
    consumer = queue.consume(lambda payload: current_lease().ack({"sum": payload + 1}))  # type: ignore[call-arg]
    assert queue.result(id, timeout=30, type=dict[str, int]) == {"sum": 2}
    assert consumer.stop()


def test_waiting_for_a_result_of_a_failed_message_raises_the_reason(
    queue: RemoteQueue[Any],
) -> None:
    failed, cancelled, unasked = (queue.put(n, result_ttl=60 * (n < 2)) for n in range(3))
    queue.get().reject("broken")
    queue.cancel(cancelled)
    queue.get().ack()
    with pytest.raises(JobFailed, match="broken"):
        queue.result(failed, timeout=30)
    with pytest.raises(JobFailed, match="cancelled"):
        queue.result(cancelled, timeout=30)
    for id in (unasked, 7, -1):
        with pytest.raises(ResultGone):
            queue.result(id, timeout=30)


# -- The server -----------------------------------------------------------------------------------


def test_a_flushed_library_is_installed_again(
    queue: RemoteQueue[Any], connection: redis.Redis
) -> None:
    queue.put(1)
    connection.function_flush()
    with queue.get() as payload:
        assert payload == 1
    assert Library().installed(connection) == Library().hash


def test_a_flushed_server_receives_the_options_again(
    client: Client, name: str, tmp_path: Path
) -> None:
    with redis_server(tmp_path) as (host, port), connect(f"redis://{host}:{port}") as own:
        queue = own.queue(name, maxsize=1)
        queue.put(1)
        with redis.Redis(host=host, port=port) as other:
            other.flushall()
            other.function_flush()
        queue.put(2)
        with pytest.raises(interlock.Full):
            queue.put_nowait(3)


def test_the_client_reconnects_to_a_restarted_server(name: str, tmp_path: Path) -> None:
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as (_, port):
        client = connect(f"redis://127.0.0.1:{port}?timeout=30")
        queue = client.queue(name, retry=AT_ONCE)
        id = queue.put("kept", keys="k")
        lease = queue.get()
    putting = threading.Thread(target=queue.put, args=("late",), kwargs={"keys": "k"})
    putting.start()
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with redis_server(tmp_path, *options, wanted=port), client:
        putting.join()
        assert lease.id == id
        lease.ack()
        queue.get().ack()
        assert queue.stats().acks == 2


def test_an_unreachable_server_is_named_in_the_error(tmp_path: Path) -> None:
    with (
        connect(f"unix://{tmp_path}/none?timeout=0.2") as client,
        pytest.raises(EngineUnavailable, match=r"none.*0\.2 s"),
    ):
        client.queue("orders").put(1)


def test_a_wrong_password_is_reported_at_once(tmp_path: Path) -> None:
    with (
        redis_server(tmp_path, "--requirepass", "right") as (host, port),
        connect(f"redis://:wrong@{host}:{port}?timeout=60") as client,
        pytest.raises(EngineUnavailable, match="WRONGPASS") as caught,
    ):
        client.queue("orders").put(1)
    assert "wrong@" not in str(caught.value)


# -- Leases ---------------------------------------------------------------------------------------


def test_a_held_lease_is_renewed(client: Client, name: str) -> None:
    queue = client.queue(name, lease=2, retry=AT_ONCE)
    queue.put("held", keys="k")
    lease = queue.get()
    # Nobody renews this one.
    queue.put("let go")
    other = queue.get()
    other.stop_renewing()
    again = queue.get(timeout=30)
    assert (again.payload, again.attempt) == ("let go", 1)
    assert other.lost and not lease.lost
    lease.ack()
    again.ack()


def test_the_asyncio_client_renews_a_held_lease(client: Client, name: str) -> None:
    async def main() -> None:
        queue = client.aio.queue(name, lease=2, retry=AT_ONCE)
        await queue.put("held", keys="k")
        await queue.put("let go")
        lease, other = await queue.get(), await queue.get()
        other.stop_renewing()
        again = await queue.get(timeout=30)
        assert (again.payload, again.attempt) == ("let go", 1)
        await lease.ack()
        await again.ack()
        await client.aio.close()

    asyncio.run(main())


def test_a_revoked_lease_is_marked_lost_without_a_call(
    client: Client, engine_port: int, name: str
) -> None:
    queue = client.queue(name, lease=0.3)
    id = queue.put(1)
    lease = queue.get()
    with connect(f"redis://127.0.0.1:{engine_port}") as operator:
        assert operator.queue(name).revoke(id)
    lost = threading.Event()

    def look() -> None:
        while not lease.lost:
            lost.wait(0.01)
        lost.set()

    threading.Thread(target=look, daemon=True).start()
    assert lost.wait(30)
    with pytest.raises(interlock.LeaseLost):
        lease.ack()


def test_current_lease_returns_the_lease_of_the_with_block(queue: RemoteQueue[Any]) -> None:
    id = queue.put(1)
    with queue.get() as payload:
        assert (payload, current_lease().id) == (1, id)
    with pytest.raises(LookupError):
        current_lease()


def test_settled_leases_leave_nothing_behind(queue: RemoteQueue[Any]) -> None:
    queue.put_many(range(50))
    while leases := queue.exchange([], 7, timeout=0)[1]:
        queue.ack_many(leases)
    del leases
    gc.collect()
    assert not queue._client._sessions.renewer._held
    assert not [one for one in gc.get_objects() if type(one) is Grant]


# -- Handles, threads and processes ---------------------------------------------------------------


def test_closing_a_handle_wakes_its_waiting_calls_and_does_not_seal_the_queue(
    client: Client, engine_port: int, name: str
) -> None:
    queue = client.queue(name)
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            queue.get()
        except ShutDown as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    queue.close()
    waiting.join(30)
    assert len(raised) == 1
    with pytest.raises(ShutDown):
        queue.put(1)
    assert client.queue(name).put(1)


def test_calls_on_a_closed_client_raise(engine_port: int) -> None:
    client = connect(f"redis://127.0.0.1:{engine_port}")
    client.close()
    with pytest.raises(ShutDown):
        client.queue("orders").put(1)


def test_a_consumer_that_is_stopped_settles_what_it_handled(queue: RemoteQueue[Any]) -> None:
    handled = threading.Semaphore(0)
    with queue.consume(lambda _: handled.release(), threads=3):
        queue.put_many(range(20), keys=lambda n: n % 2)
        for _ in range(20):
            assert handled.acquire(timeout=30)
    stats = queue.stats()
    assert (stats.acks, stats.unsettled) == (20, 0)


def test_a_handler_that_exceeds_its_timeout_loses_its_lease(client: Client, name: str) -> None:
    queue = client.queue(name, retry=AT_ONCE)
    hang, lost = threading.Event(), threading.Event()

    def handle(_: Any) -> None:
        if current_lease().attempt == 1:
            hang.wait(30)
            if current_lease().lost:
                lost.set()

    queue.put(1, keys="k")
    with queue.consume(handle, threads=2, timeout=0.1):
        queue.join(30)
        hang.set()
        assert lost.wait(30)


def test_many_threads_handle_each_message_once(queue: RemoteQueue[Any]) -> None:
    taken: list[int] = []

    def put(start: int) -> None:
        for n in range(start, start + 40):
            queue.put(n, keys=n % 3)

    with queue.consume(taken.append, threads=4):
        threads = [threading.Thread(target=put, args=(40 * n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        queue.join(30)
    assert sorted(taken) == list(range(160))


@pytest.mark.parametrize("swallows", [False, True])
def test_cancelling_a_consumer_uses_no_attempt_of_its_messages(
    client: Client, name: str, swallows: bool
) -> None:
    async def main() -> None:
        queue = client.aio.queue(name, retry=Retry(attempts=2, first=0))
        entered = asyncio.Event()

        async def handle(_: Any) -> None:
            entered.set()
            with contextlib.suppress(*([asyncio.CancelledError] if swallows else [])):
                await asyncio.get_running_loop().create_future()

        for _ in range(3):
            await queue.put(1)
            entered.clear()
            consumer = asyncio.create_task(queue.consume(handle))
            await entered.wait()
            consumer.cancel()
            await asyncio.wait([consumer], timeout=30)
            assert consumer.cancelled()
        stats = await queue.stats()
        # The work of a handler at its end.
        assert (stats.dead, stats.retries) == (0, 0)
        assert (stats.acks, stats.ready) == ((3, 0) if swallows else (0, 3))

    asyncio.run(main())


def test_a_get_interrupted_by_ctrl_c_returns_what_it_leased(client: Client, name: str) -> None:
    async def main() -> None:
        queue = client.aio.queue(name)
        for n in range(20):
            getter = asyncio.create_task(queue.get())
            await asyncio.sleep(0)
            await queue.put(n)
            getter.cancel()
            await asyncio.wait([getter])
            if not getter.cancelled():
                await getter.result().release()
            async with await queue.get(timeout=20) as payload:
                assert (payload, current_lease().attempt) == (n, 1)
        await client.aio.close()

    asyncio.run(main())


# A signal may come while a connection is made, between a socket and who would close it.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_get_interrupted_by_a_signal_handler_returns_what_it_leased(
    queue: RemoteQueue[Any],
) -> None:
    class Interrupted(Exception):
        pass

    def interrupt(_signal: int, _frame: object) -> None:
        raise Interrupted

    # The first call imports modules, which a signal would leave half read.
    queue.stats()
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        for n in range(5):
            main = threading.main_thread().ident
            assert main is not None
            timer = threading.Timer(0.02, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            with pytest.raises(Interrupted):
                queue.get()
            timer.join()
            queue.put(n)
            lease = queue.get(timeout=20)
            assert (lease.payload, lease.attempt) == (n, 1)
            lease.ack()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_full_server_refuses_puts_and_can_be_drained(tmp_path: Path) -> None:
    with redis_server(tmp_path) as (host, port), connect(f"redis://{host}:{port}") as client:
        queue = client.queue("orders", bytes)
        queue.put(b"x" * 1000)
        with redis.Redis(host=host, port=port) as server:
            server.config_set("maxmemory", "1")
            with pytest.raises(interlock.Full, match="memory limit"):
                queue.put(b"y")
            with queue.get() as payload:
                assert len(payload) == 1000
            server.config_set("maxmemory", "0")
        assert queue.put(b"y")
        assert queue.stats().acks == 1


def test_a_tls_connection_trusts_only_the_named_authority(
    tmp_path: Path,
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "other")
    signed = authority.sign("localhost")
    needs_hub()
    tls = {"port": 0, "cert": str(signed.cert), "key": str(signed.key)}

    async def aio(url: str) -> None:
        async with connect(url) as client:
            assert await client.queue("orders").put(1)

    with interlock.Hub(port=0, workers=1, tls=tls) as hub:
        url = f"rediss://localhost:{hub.tls_port}?ca="
        with connect(url + str(authority.cert)) as client:
            assert client.queue("orders").put(1)
        asyncio.run(aio(url + str(authority.cert)))
        hasty = f"{url}{stranger.cert}&timeout=0.2"
        with connect(hasty) as client, pytest.raises(EngineUnavailable):
            client.queue("orders").put(1)


def payload_of(batch: LeasedBatch) -> Any:
    (place,) = batch.places
    return msgspec.msgpack.decode(batch.message(place).payload)


def test_an_exchange_sent_ahead_is_answered_when_its_reply_is_requested(
    queue: RemoteQueue[Any],
) -> None:
    queue.put_many(["one", "two", "three"])
    first = queue.get()
    ahead = [begin_exchange(queue, [first.acking()], 1), begin_exchange(queue, [], 1)]
    # Other calls continue in between.
    assert queue.stats().puts == 3
    (answers, second), (none, third) = ahead[0](), ahead[1]()
    assert (answers, none) == ([b"ACKED"], [])
    assert second is not None and third is not None
    assert {payload_of(batch) for batch in (second, third)} == {"two", "three"}
    settle(queue, second.acking(second.places) + third.acking(third.places))
    assert queue.stats().unsettled == 0


def test_an_exchange_sent_ahead_leases_nothing_after_its_handle_is_closed(
    client: Client, queue: RemoteQueue[Any], name: str, engine_port: int
) -> None:
    queue.put_many(["one", "two"])
    first = queue.get()
    with redis.Redis(port=engine_port) as server:
        # So that the handle is closed before there is an answer.
        server.client_pause(60_000, all=False)
        taken = begin_exchange(queue, [first.acking()], 1)
        queue.close()
        server.client_unpause()
    with pytest.raises(ShutDown):
        taken()
    again: RemoteQueue[Any] = client.queue(name)
    stats = again.stats()
    assert (stats.acks, stats.leased, stats.unsettled) == (1, 0, 1)
    with pytest.raises(ShutDown):
        begin_exchange(queue, [], 1)
    with again.get() as payload:
        assert (payload, current_lease().attempt) == ("two", 1)


def test_an_exchange_that_was_sent_ahead_outlives_its_connection(
    client: Client, queue: RemoteQueue[Any], engine_port: int
) -> None:
    queue.put_many(["one", "two"])
    first = queue.get()
    taken = begin_exchange(queue, [first.acking()], 1)
    with redis.Redis(port=engine_port) as server:
        server.client_kill_filter(_type="normal", skipme=True)
    answers, second = taken()
    assert second is not None and second.message(second.places[0]).attempt == 1
    assert (answers, payload_of(second)) == ([b"ACKED"], "two")
    settle(queue, second.acking(second.places))
