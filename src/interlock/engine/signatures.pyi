"""What the client will look like; goes once the modules are there. Internal names begin with _."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Literal, NamedTuple, Self, TypedDict, TypeVar

from interlock import DeadLetter, Explanation, HotKey, Key, Keys, Retry, Seconds, Stats
from interlock.message import Kind

T = TypeVar("T")

def connect(url: str | None = None) -> Client: ...  # INTERLOCK_URL, else memory://; connects lazily

class QueueOptions(TypedDict, total=False):
    # declared to the engine
    maxsize: int
    maxbytes: int
    retry: Retry
    maxdead: int
    dedup_window: Seconds
    durability: Literal["always", "everysec", "none", "server"]
    # this handle's own
    keys: Callable[[Any], Keys]
    shared: Callable[[Any], Keys]
    lease: Seconds  # default 30
    codec: Literal["msgpack", "json", "pickle"]  # default msgpack; type bytes: as they are

class Client:  # engine/client.py
    url: str  # without its password
    def queue(self, name: str, type: type[T] = ..., **options: Any) -> RemoteQueue[T]: ...
    @property
    def aio(self) -> AsyncClient: ...  # .queue gives AsyncRemoteQueue
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    async def __aenter__(self) -> AsyncClient: ...

class RemoteQueue(Generic[T]):  # engine/queue.py; AsyncRemoteQueue in engine/aio.py: awaited
    name: str
    aio: AsyncRemoteQueue[T]
    def put(
        self, payload: T, block: bool = True, timeout: Seconds | None = None, *,
        keys: Keys | None = None, shared: Keys | None = None, priority: int = 0,
        delay: Seconds = 0, dedup: str | None = None, barrier: bool = False, quiet: bool = False,
        retry: Retry | None = None,  # this message's own policy
        result_ttl: Seconds = 0,  # how long its result is kept
    ) -> int: ...
    def put_known(self, payload: T, block: bool = True, timeout: Seconds | None = None,
                  **options: Any) -> Put: ...  # as put, but says too whether dedup was known
    def put_nowait(self, payload: T, **options: Any) -> int: ...
    def put_many(self, items: Iterable[T], block: bool = True, timeout: Seconds | None = None,
                 **options: Any) -> list[int]: ...
    def get(self, block: bool = True, timeout: Seconds | None = None, *, kind: Kind = "any") -> RemoteLease[T]: ...
    def get_nowait(self, *, kind: Kind = "any") -> RemoteLease[T]: ...
    def get_many(self, limit: int, block: bool = True, timeout: Seconds | None = None, *, kind: Kind = "any") -> list[RemoteLease[T]]: ...
    def ack_many(self, leases: Iterable[RemoteLease[T]]) -> None: ...
    def exchange(  # for workers: settle, then lease, in one round trip (il1_next)
        self, settlements: Sequence[Settlement], limit: int, block: bool = True,
        timeout: Seconds | None = None, *, kind: Kind = "any",
    ) -> tuple[list[Answer], list[RemoteLease[T]]]: ...  # no Empty: an empty list; ShutDown as get
    def settle(self, settlements: Sequence[Settlement]) -> list[Answer]: ...
    def result(self, id: int, timeout: Seconds | None = None, type: Any = Any) -> Any: ...
        # what ack(result=...) gave; TimeoutError, JobFailed, ResultGone
    # consume cancel explain revoke retry skip bury requeue dead_letters pause resume stats hot_keys
    # join qsize empty full as on KeyedQueue; and
    def seal(self) -> bool: ...
    def reopen(self) -> bool: ...
    def purge(self, what: Literal["pending", "dead"] = "pending") -> int: ...
    def close(self) -> None: ...

class Put(NamedTuple):
    id: int
    known: bool

Answer = Literal["acked", "retried", "dead", "held", "released", "lost"]

class RemoteLease(Generic[T]):  # engine/lease.py; AsyncRemoteLease: settling awaited
    payload: T; queue: str; keys: frozenset[bytes]; shared: frozenset[bytes]
    id: int; sequence: int; attempt: int; token: int; deadline: float; lost: bool
    def ack(self, result: Any = None) -> None: ...  # result: kept where the put had a result_ttl
    def nack(self, delay: Seconds | None = None, error: BaseException | str | None = None) -> None: ...
    def reject(self, reason: str) -> None: ...
    def release(self) -> None: ...
    def extend(self, seconds: Seconds) -> None: ...
    def stop_renewing(self) -> None: ...  # it then runs out at its deadline
    # For exchange(): what to send, and the lease counts as settled from then on (no renewal,
    # no warning). The answer "lost" is told by exchange(), not raised.
    def acking(self, result: Any = None) -> Settlement: ...
    def nacking(self, delay: Seconds | None = None, error: BaseException | str | None = None) -> Settlement: ...
    def rejecting(self, reason: str) -> Settlement: ...
    def releasing(self) -> Settlement: ...

class Settlement: ...  # opaque

# engine/transport: sync, asyncio and memory; engine/wire.py knows the format; engine/wait.py the
# waiting; engine/flow.py runs one description of a call on either face.
