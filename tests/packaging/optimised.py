"""A program that uses each face, for an interpreter that strips docstrings and asserts."""

import asyncio
import sys
import threading

import interlock
from interlock import App, KeyedExecutor, KeyedQueue, connect

app = App("memory://oo")
done = threading.Event()


@app.task(keys="order:{id}", queue="orders")
def ship(id: int) -> int:
    done.set()
    return id


@app.task(queue="orders", result_ttl=60)
async def wait(n: int) -> int:
    return n


def main() -> None:
    queue: KeyedQueue[str] = KeyedQueue()
    queue.put("a", keys="k")
    with queue.get():
        pass

    async def aio() -> str:
        await queue.aio.put("b", keys="k")
        async with await queue.aio.get() as payload:
            return payload

    if asyncio.run(aio()) != "b":
        sys.exit("aio")
    with KeyedExecutor(max_workers=2) as executor:
        if executor.submit_keyed("k", pow, 2, 3).result() != 8:
            sys.exit("executor")
    with connect("memory://oo") as client:
        remote = client.queue("mail")
        remote.put({"n": 1})
        with remote.get():
            pass

        async def far() -> None:
            await client.aio.queue("mail").put(2)
            lease = await client.aio.queue("mail").get()
            await lease.ack()

        asyncio.run(far())
    with app, app.worker(queues=["orders"]):
        ship.send(7)
        job = wait.send(3)
        if job.result(timeout=20) != 3:
            sys.exit("job")
        if not done.wait(20):
            sys.exit("worker")
    if sys.platform == "linux":
        with interlock.Hub(port=0) as hub, connect(f"interlock://127.0.0.1:{hub.port}") as client:
            client.queue("mail").put(1)
            with client.queue("mail").get():
                pass
    print("ran", "with" if __debug__ else "without", "asserts")


if __name__ == "__main__":
    main()
