"""Clause 19: at least once; and an acked message is never leased again."""

import warnings
from collections import Counter
from random import Random

from interlock import Retry
from interlock.testing.contract.registry import clause
from interlock.testing.contract.trial import Trial


@clause(19)
async def what_is_not_acked_is_handed_out_again(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=None, first=0))
    id = await q.put(keys="a")
    for attempt in (1, *range(1, 20)):
        lease = await q.one()
        assert (lease.id, lease.attempt) == (id, attempt)
        await t.advance(10)
    await (await q.one()).ack()
    await t.advance(1_000)
    assert await q.payloads() == []
    assert await q.empty()


@clause(19)
async def every_message_is_acked_once_whatever_happens_to_its_leases(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=None, first=1, longest=4, jitter=False))
    random = Random(19)
    total = 150
    for n in range(total):
        await q.put(
            n,
            keys=random.sample("abcdefgh", random.randint(0, 2)),
            delay=random.choice([0, 0, 0, 7]),
            barrier=False,
        )
    acked: Counter[int] = Counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        for _ in range(100_000):
            if not (await q.stats()).unsettled:
                break
            for lease in await q.ready():
                match random.choice(["ack", "ack", "ack", "nack", "release", "drop", "expire"]):
                    case "ack":
                        acked[lease.payload] += 1
                        await lease.ack()
                    case "nack":
                        await lease.nack()
                    case "release":
                        await lease.release()
                    case "drop":
                        lease.drop()
                    case _:
                        pass  # it expires
            await t.advance(random.choice([0, 0.5, 1, 10]))
    assert acked == Counter(range(total))


@clause(19)
async def a_fenced_write_takes_effect_once(t: Trial) -> None:
    q = t.queue(lease=10, retry=Retry(attempts=None, first=0))
    await q.put("write", keys="a")
    stored = 0
    frozen = await q.one()
    await t.advance(10)
    current = await q.one()
    for lease in (current, frozen):
        if stored <= lease.token:
            stored = lease.token
            writer = lease
    assert writer is current
