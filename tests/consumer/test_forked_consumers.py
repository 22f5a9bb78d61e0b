"""Handlers of consumers that fork, and return or raise in the child too."""

from __future__ import annotations

import pytest

from tests.queue.test_queue_process import run

PROGRAM = """
    codes = []

    def handler(how):
        child = os.fork()
        if not child:
            # So that one that does not end there ends at all.
            signal.alarm(20)
            if how == "raises":
                raise ValueError("of the child")
            return
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    async def awaited(how):
        await asyncio.sleep(0)
        handler(how)

    client = connect("memory://")
    queue = {"here": KeyedQueue, "engine": lambda: client.queue("forked")}[WHERE]()
    ways = ["returns", "raises", "returns"]
    queue.put_many(ways, keys="all")
    if FACE == "threads":
        with queue.consume(handler, threads=1, timeout=TIMEOUT):
            queue.join()
    elif WHERE == "here":
        queue.shutdown()
        asyncio.run(queue.aio.consume(awaited, threads=1, timeout=TIMEOUT))
    else:
        async def main():
            # In this process, so the queue is the same.
            other = client.aio.queue("forked")
            task = asyncio.create_task(other.consume(awaited, threads=1, timeout=TIMEOUT))
            await other.join()
            task.cancel()
        asyncio.run(main())
    stats = queue.stats()
    print(codes, stats.acks, stats.retries)
"""


@pytest.mark.parametrize("timeout", [None, 30])
@pytest.mark.parametrize("face", ["threads", "asyncio"])
@pytest.mark.parametrize("where", ["here", "engine"])
def test_a_child_forked_in_a_handler_exits_there_and_the_parent_settles_the_message(
    where: str, face: str, timeout: float | None
) -> None:
    values = f"WHERE, FACE, TIMEOUT = {where!r}, {face!r}, {timeout}"
    program = PROGRAM.replace("codes = []", f"codes = []\n    {values}", 1)
    said = run(program)
    assert "[0, 1, 0] 3 0" in said
    assert said.count("ValueError: of the child") == 1
    assert "LeaseLost" not in said and "nothing was changed" not in said
