"""A fleet of devices: readings of one device in order, a firmware update alone at its site.

Every reading holds its device alone and shares its site with the others. An update takes the whole
site: it starts when the readings before it are done, and the readings behind it wait. Other sites
do not notice. A slow device holds up nobody but itself.
"""

import threading
import time
from collections import defaultdict
from dataclasses import dataclass

from interlock import KeyedQueue

SITES = ("north", "south")
DEVICES = 6


@dataclass(frozen=True)
class Reading:
    site: str
    device: int
    number: int


@dataclass(frozen=True)
class Update:
    site: str
    version: int


versions: dict[str, int] = dict.fromkeys(SITES, 1)
log: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
at_work: defaultdict[str, int] = defaultdict(int)
beside_updates: list[int] = []
counting = threading.Lock()


def handle(message: Reading | Update) -> None:
    with counting:
        at_work[message.site] += 1
        beside = at_work[message.site]
    if isinstance(message, Update):
        beside_updates.append(beside)
        versions[message.site] = message.version
    else:
        if message.device == 0:
            time.sleep(0.001)  # a slow line
        log[message.site, message.device].append((message.number, versions[message.site]))
    with counting:
        at_work[message.site] -= 1


def main() -> None:
    # That many readings stand on a site's key is no news here.
    queue: KeyedQueue[Reading | Update] = KeyedQueue(warn_lane_depth=0)
    with queue.consume(handle, threads=6):
        for number in range(60):
            for site in SITES:
                if number in (20, 40):
                    queue.put(Update(site, number // 20 + 1), keys=f"site:{site}")
                for device in range(DEVICES):
                    queue.put(
                        Reading(site, device, number),
                        keys=f"device:{site}:{device}",
                        shared=f"site:{site}",
                    )
        queue.join()

    for lines in log.values():
        # In order, and each reading under the version that was put before it.
        assert lines == [(number, number // 20 + 1) for number in range(60)]
    assert beside_updates == [1] * (2 * len(SITES)), "an update is alone at its site"
    print(f"{len(log)} devices, {sum(map(len, log.values()))} readings, {2 * len(SITES)} updates")


if __name__ == "__main__":
    main()
