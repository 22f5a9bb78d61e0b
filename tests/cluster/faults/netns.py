"""Machines of a run: a network namespace each, a bridge for each data centre, a link between them.

All of it is in namespaces, the bridges too, so nothing of the machine's own network is touched, and
several runs at once do not meet. Packets of a cut or lossy link are dropped on the bridges
(nftables), so a machine itself cannot notice; what stays within one machine is never dropped. Every
name has the pid of its run: `sweep` removes what a run left that was killed."""

from __future__ import annotations

import ctypes
import itertools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.hub.servers import missing

PREFIX = "ilf"
PLACE = Path("/run/netns")
CLONE_NEWNET = 0x40000000
_serial = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


def needed() -> None:
    """Skip the test, or fail it in the CI, where namespaces cannot be made."""
    if os.geteuid() != 0:
        missing("network namespaces need root")
    for program in ("ip", "nft", "mount"):
        if shutil.which(program) is None:
            missing(f"no {program}: install iproute2, nftables and mount")


class Network:
    """Machines by name, in data centres.

    A way between two of them can be cut in one direction or in both, lose some of what is sent, or
    the link between two data centres can be down. `heal` undoes all of it.
    """

    def __init__(self, centres: Mapping[str, Sequence[str]]) -> None:
        sweep()
        self.centres = {name: tuple(hosts) for name, hosts in centres.items()}
        self.address: dict[str, str] = {}
        self.floating: dict[str, str] = {}
        """By data centre: an address that a machine of it has beside its own; see `float_to`."""
        self._mark = f"{PREFIX}{os.getpid()}-{next(_serial)}-"
        self._cut: set[tuple[str, str]] = set()
        self._loss: dict[str, int] = {}
        self._dropped_links: set[tuple[str, str]] = set()
        self._floats: dict[str, str] = {}
        self._down = False
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def name_of(self, host: str) -> str:
        """The name of a machine's namespace."""
        return self._mark + host

    def command(self, host: str) -> list[str]:
        """The words before a command that runs it at a machine; its pid is the command's own."""
        return ["ip", "netns", "exec", self.name_of(host)]

    def enter(self, host: str) -> None:
        """Have the sockets that this thread makes from now on be of a machine."""
        with (PLACE / self.name_of(host)).open() as namespace:
            if _libc.setns(namespace.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns to {host} failed")

    def cut(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop what `a` sends to `b`, and, unless `one_way`, what `b` sends to `a`."""
        self._cut.add((a, b))
        if not one_way:
            self._cut.add((b, a))
        self._apply()

    def mend(self, a: str, b: str) -> None:
        """Undo `cut`."""
        self._cut -= {(a, b), (b, a)}
        self._apply()

    def isolate(self, host: str) -> None:
        """Cut a machine off from all others."""
        self._cut |= {pair for o in self.address if o != host for pair in ((host, o), (o, host))}
        self._apply()

    def join(self, host: str) -> None:
        """Undo all cuts of a machine."""
        self._cut = {pair for pair in self._cut if host not in pair}
        self._apply()

    def lose(self, host: str, percent: int) -> None:
        """Drop that share of the packets to and from a machine; 0 drops none."""
        self._loss.pop(host, None)
        if percent:
            self._loss[host] = percent
        self._apply()

    def part(self, a: str, b: str, *, one_way: bool = False) -> None:
        """Drop what goes from one data centre to another; unless `one_way`, in both directions."""
        self._dropped_links.add((a, b))
        if not one_way:
            self._dropped_links.add((b, a))
        self._apply()

    def unpart(self) -> None:
        """Undo `part`."""
        self._dropped_links.clear()
        self._apply()

    def link(self, up: bool) -> None:
        """Put the link between the data centres up or down."""
        self._down = not up
        first, *others = self.centres
        if others:
            _ip(f"-n {self._switch(first)} link set to-{others[0]} {'up' if up else 'down'}")

    def heal(self) -> None:
        """Undo everything that was cut, lost or put down."""
        self._cut.clear()
        self._loss.clear()
        self._dropped_links.clear()
        self._apply()
        if self._down:
            self.link(True)

    def float_to(self, centre: str, host: str) -> None:
        """Give the floating address of a data centre to a machine, and take it from the others."""
        address = self.floating[centre]
        for other in self.centres[centre]:
            _ip(f"-n {self.name_of(other)} addr del {address}/16 dev e0", check=False)
        _ip(f"-n {self.name_of(host)} addr add {address}/16 dev e0")
        self._floats[centre] = host
        # They would continue to send to the machine that had it.
        for other in self.address:
            if other != host:
                _ip(f"-n {self.name_of(other)} neigh flush to {address} dev e0", check=False)
        self._apply()

    def close(self) -> None:
        """Remove everything. What still runs in there is killed."""
        for path in PLACE.glob(f"{self._mark}*"):
            remove(path.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _switch(self, centre: str) -> str:
        return f"{self._mark}switch-{centre}"

    def _build(self) -> None:
        lines = []
        for number, (centre, hosts) in enumerate(self.centres.items(), 1):
            switch = self._switch(centre)
            _ip(f"netns add {switch}")
            inside = ["link add br0 type bridge", "link set br0 up"]
            self.floating[centre] = f"10.77.{number}.250"
            for place, host in enumerate(hosts, 1):
                name = self.name_of(host)
                self.address[host] = f"10.77.{number}.{place}"
                _ip(f"netns add {name}")
                inside += [
                    f"link add p-{host} type veth peer name e0 netns {name}",
                    f"link set p-{host} master br0 up",
                ]
                lines.append((name, [f"addr add {self.address[host]}/16 dev e0", "link set e0 up"]))
                lines[-1][1].append("link set lo up")
            lines.insert(0, (switch, inside))
            # A switch must be ready before those at it.
            lines.sort(key=lambda one: "-switch-" not in one[0])
        for name, batch in lines:
            _batch(name, batch)
        first, *others = self.centres
        for other in others:
            peer = self._switch(other)
            _batch(
                self._switch(first),
                [
                    f"link add to-{other} type veth peer name to-{first} netns {peer}",
                    f"link set to-{other} master br0 up",
                ],
            )
            _batch(peer, [f"link set to-{first} master br0 up"])

    def _apply(self) -> None:
        rules = []
        for a, b in sorted(self._cut):
            for source, target in itertools.product(self._addresses(a), self._addresses(b)):
                rules.append(f"ip saddr {source} ip daddr {target} drop")
        numbers = {centre: number for number, centre in enumerate(self.centres, 1)}
        for a, b in sorted(self._dropped_links):
            rules.append(f"ip saddr 10.77.{numbers[a]}.0/24 ip daddr 10.77.{numbers[b]}.0/24 drop")
        for host, percent in sorted(self._loss.items()):
            for address in self._addresses(host):
                for way in ("saddr", "daddr"):
                    rules.append(f"ip {way} {address} numgen random mod 100 < {percent} drop")
        chain = "".join(f"add rule bridge faults f {rule}\n" for rule in rules)
        text = (
            "add table bridge faults\n"
            "delete table bridge faults\n"
            "add table bridge faults\n"
            "add chain bridge faults f { type filter hook forward priority 0; }\n" + chain
        )
        for centre in self.centres:
            subprocess.run(
                ["ip", "netns", "exec", self._switch(centre), "nft", "-f", "-"],
                input=text,
                text=True,
                check=True,
            )

    def _addresses(self, host: str) -> list[str]:
        """Return its own, and the floating one of its data centre if it has that now."""
        found = [self.address[host]]
        found += [self.floating[centre] for centre, at in self._floats.items() if at == host]
        return found


def sweep() -> list[str]:
    """Remove what dead runs have left; answers the names of their namespaces and folders."""
    swept = []
    for path in PLACE.glob(f"{PREFIX}*") if PLACE.exists() else ():
        if _is_of_the_dead(path.name):
            remove(path.name)
            swept.append(path.name)
    for line in Path("/proc/mounts").read_text().splitlines():
        source, target = line.split(" ")[:2]
        if source.startswith(PREFIX) and _is_of_the_dead(source):
            subprocess.run(["umount", "-l", target], check=False)
            swept.append(target)
    for path in (*Path("/dev/shm").glob(f"{PREFIX}*"), *Path("/tmp").glob(f"{PREFIX}*")):
        if _is_of_the_dead(path.name):
            shutil.rmtree(path, ignore_errors=True)
            swept.append(str(path))
    return swept


def remove(namespace: str) -> None:
    """Remove a namespace, and kill what runs in it."""
    said = subprocess.run(
        ["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False
    ).stdout
    for pid in said.split():
        # A thread of this process may have been in there: that is no reason to die.
        if int(pid) != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    _ip(f"netns del {namespace}", check=False)


def _is_of_the_dead(name: str) -> bool:
    found = re.match(rf"{PREFIX}(\d+)(?:-|$)", name)
    return found is not None and not Path(f"/proc/{found[1]}").exists()


def _ip(words: str, *, check: bool = True) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"ip {words}: {done.stderr.strip()}")


def _batch(namespace: str, lines: Sequence[str]) -> None:
    subprocess.run(
        ["ip", "-n", namespace, "-batch", "-"], input="\n".join(lines), text=True, check=True
    )
