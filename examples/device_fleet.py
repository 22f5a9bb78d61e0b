"""A fleet of devices: readings of one device in order, a firmware update alone at its site.

Every reading holds its device alone and shares its site with the others. An update takes the whole
site: it starts when the readings before it are done, and the readings behind it wait. Other sites
do not notice. A slow device holds up nobody but itself.

    python examples/device_fleet.py                                  in this process
    python examples/device_fleet.py --url redis://127.0.0.1:6379     the same on Redis
"""

import argparse
import asyncio
from collections import defaultdict
from dataclasses import dataclass

from interlock import App, Job

SITES = ("north", "south")
DEVICES = 6
ROUNDS = 30


@dataclass(frozen=True)
class Reading:
    site: str
    device: int
    number: int


app = App(audit=True)
versions: dict[str, int] = dict.fromkeys(SITES, 1)
log: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
at_work: defaultdict[str, int] = defaultdict(int)
beside_updates: list[int] = []


@app.task(
    keys="device:{reading.site}:{reading.device}",
    shared="site:{reading.site}",
    queue="fleet",
    result_ttl=60,
)
async def take(reading: Reading) -> None:
    at_work[reading.site] += 1
    if reading.device == 0:
        await asyncio.sleep(0.001)  # a slow line
    log[reading.site, reading.device].append((reading.number, versions[reading.site]))
    at_work[reading.site] -= 1


@app.task(keys="site:{site}", queue="fleet", result_ttl=60)
async def update(site: str, version: int) -> None:
    beside_updates.append(at_work[site])
    await asyncio.sleep(0.001)
    versions[site] = version


async def send_all() -> None:
    jobs: list[Job[None]] = []
    for number in range(ROUNDS):
        for site in SITES:
            if number in (10, 20):
                jobs.append(await update.asend(site, number // 10 + 1))
            for device in range(DEVICES):
                jobs.append(await take.asend(Reading(site, device, number)))
    for job in jobs:
        await job.aresult(timeout=30)


async def run() -> None:
    async with app:
        with app.worker(threads=32, queues=["fleet"], pool="asyncio") as worker:
            await send_all()
    assert worker.figures().violations == 0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", help="the engine (memory://)")
    app.url = parser.parse_args().url
    asyncio.run(run())

    for lines in log.values():
        # In order, and each reading under the version that was sent before it.
        assert lines == [(number, number // 10 + 1) for number in range(ROUNDS)]
    assert beside_updates == [0] * (2 * len(SITES)), "an update is alone at its site"
    print(f"{len(log)} devices, {sum(map(len, log.values()))} readings, {2 * len(SITES)} updates")


if __name__ == "__main__":
    main()
