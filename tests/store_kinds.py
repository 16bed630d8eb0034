# SPDX-License-Identifier: BSD-3-Clause
"""Every kind of store, for tests that must hold for all of them.

A kind opens any number of stores on the same data: `open()` the first time, then again
for what another process would have.  Whoever uses a kind closes it.
"""

from __future__ import annotations

import contextlib
import dis
import os
import re
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from distlite import (
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    QueueEmptyError,
    Store,
    TCPStore,
    store_relay,
)

# Far more than any working operation takes.
PATIENCE = timedelta(seconds=60)


def master(port: int = 0, **arguments: Any) -> TCPStore:
    """A store that serves; port 0 stands for any free one."""
    arguments = {"is_master": True, "timeout": PATIENCE, **arguments}
    return TCPStore("127.0.0.1", port, **arguments)


def client(port: int, **arguments: Any) -> TCPStore:
    return TCPStore("127.0.0.1", port, **{"timeout": PATIENCE, **arguments})


class DictStore(Store):
    """A store written in Python, with only the methods that cannot be made from
    others."""

    def __init__(self) -> None:
        super().__init__()
        self.values: dict[str, bytes] = {}
        self.queues: dict[str, deque[bytes]] = {}
        self.changed = threading.Condition()

    def _wait_until(
        self, is_true: Callable[[], bool], timeout: timedelta, *keys: str
    ) -> None:
        seconds = timeout.total_seconds()
        if not self.changed.wait_for(is_true, None if seconds < 0 else seconds):
            # Rounded up: what arrives here is what was left of the caller's timeout.
            rounded = -(-timeout // timedelta(milliseconds=50)) * 50
            names = ", ".join(key for key in keys if not self._has(key))
            raise DistStoreError(f"wait timeout after {rounded}ms, keys: {names}")

    def _has(self, key: str) -> bool:
        return key in self.values or bool(self.queues.get(key))

    def set(self, key: str, value: bytes) -> None:
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        with self.changed:
            self._wait_until(lambda: key in self.values, self.timeout, key)
            return self.values[key]

    def add(self, key: str, amount: int) -> int:
        with self.changed:
            held = self.values.get(key, b"0")
            number = re.match(rb"\s*[+-]?\d+", held)
            if number is None:
                raise ValueError(f"the value of {key} is no number: {held!r}")
            total = int(number[0]) + amount
            total = (total + 2**63) % 2**64 - 2**63
            self.values[key] = b"%d" % total
            self.changed.notify_all()
            return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        with self.changed:
            held = self.values.get(key)
            if held == expected or (held is None and not expected):
                self.values[key] = held = desired
                self.changed.notify_all()
            return expected if held is None else held

    def delete_key(self, key: str) -> bool:
        with self.changed:
            return self.values.pop(key, None) is not None

    def check(self, keys: list[str]) -> bool:
        with self.changed:
            return all(map(self._has, keys))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        limit = self.timeout if timeout is None else timeout
        with self.changed:
            self._wait_until(lambda: all(map(self._has, keys)), limit, *keys)

    def num_keys(self) -> int:
        with self.changed:
            return len(self.values)

    def list_keys(self) -> list[str]:
        with self.changed:
            return list(self.values)

    def queue_push(self, key: str, value: bytes) -> None:
        with self.changed:
            self.queues.setdefault(key, deque()).append(value)
            self.changed.notify_all()

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        with self.changed:
            if block:
                self._wait_until(lambda: bool(self.queues.get(key)), self.timeout, key)
            if not self.queues.get(key):
                raise QueueEmptyError("queue is empty")
            return self.queues[key].popleft()

    def queue_len(self, key: str) -> int:
        with self.changed:
            return len(self.queues.get(key, ()))

    def clone(self) -> DictStore:
        return self


class Kind:
    """One kind of store and the stores opened so far."""

    has_queues = True
    has_extended_api = True
    # What num_keys() counts besides the test's own keys.
    hidden_keys = 0
    # Bytes of a key's limit that a prefix takes.
    key_room = 0

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Store] = []

    def open(self) -> Store:
        store = self._make()
        store.set_timeout(PATIENCE)
        self.opened.append(store)
        return store

    def _make(self) -> Store:
        raise NotImplementedError

    def close(self) -> None:
        for store in reversed(self.opened):
            store.close()


class Hash(Kind):
    def _make(self) -> Store:
        return self.opened[0] if self.opened else HashStore()


class File(Kind):
    has_queues = False
    has_extended_api = False
    hidden_keys = 1  # the count of members

    def _make(self) -> Store:
        return FileStore(self.folder / "store")


class Prefix(Kind):
    """Two deep, beside a neighbour that must never be seen."""

    hidden_keys = 1
    key_room = len("outer/inner/")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.below = HashStore()
        self.below.set("outer", "neighbour")

    def _make(self) -> Store:
        return PrefixStore("inner", PrefixStore("outer", self.below))


class Python(Kind):
    """Through a PrefixStore, so that every call comes from the core."""

    has_extended_api = False
    key_room = len("p/")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.below = DictStore()

    def _make(self) -> Store:
        return PrefixStore("p", self.below)


class TcpPoll(Kind):
    uses_libuv = False
    security: ClassVar[dict[str, Any]] = {}

    def _make(self) -> Store:
        if self.opened:
            return client(self.opened[0].port, **self.security)
        return master(use_libuv=self.uses_libuv, **self.security)


class TcpLibuv(TcpPoll):
    uses_libuv = True


class TcpTls(TcpLibuv):
    security: ClassVar[dict[str, Any]] = {"token": "the job's", "tls": "psk"}


class TcpUnix(TcpLibuv):
    """Whose connection has moved to the server's Unix socket."""

    def _make(self) -> Store:
        store = super()._make()
        while store.stats()["unix_clients"] <= len(self.opened):
            pass
        return store


class TcpRelay(Kind):
    """Whose clients share the connection of a relay."""

    VARIABLE = "DISTLITE_STORE_RELAY"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = master()
        self.relay = store_relay("127.0.0.1", self.server.port)
        self.before = os.environ.get(self.VARIABLE)
        os.environ[self.VARIABLE] = self.relay.address

    def _make(self) -> Store:
        store = client(self.server.port)
        assert self.server.stats()["relayed_clients"] > 0
        return store

    def close(self) -> None:
        if self.before is None:
            del os.environ[self.VARIABLE]
        else:
            os.environ[self.VARIABLE] = self.before
        super().close()
        self.relay.close()
        self.server.close()


class Written(Kind):
    """A store in Python without a view around it."""

    has_extended_api = False

    def _make(self) -> Store:
        return self.opened[0] if self.opened else DictStore()


KINDS: dict[str, type[Kind]] = {
    "hash": Hash,
    "file": File,
    "prefix": Prefix,
    "python": Python,
    "tcp-poll": TcpPoll,
    "tcp-libuv": TcpLibuv,
    "tcp-tls": TcpTls,
    "tcp-unix": TcpUnix,
    "tcp-relay": TcpRelay,
}


def _sleep_of(thread: threading.Thread) -> object:
    """Returns a value that differs between two sleeps inside a call of C; None if the
    thread does not sleep."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or frame.f_lasti < 0:
        return None
    # What frees an object without a call is the instruction that drops it.
    instruction = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    if not instruction.startswith(("CALL", "POP_TOP")):
        return None
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    except OSError:
        return None  # it has ended
    fields = dict(line.split(":", 1) for line in status.splitlines())
    is_asleep = fields["State"].split()[0] == "S"
    return fields["voluntary_ctxt_switches"] if is_asleep else None


def wait_until_asleep(thread: threading.Thread) -> None:
    """Returns once the kernel says that the thread sleeps inside a call of C.

    A thread that waits for the interpreter sleeps, too, but not during the whole pause
    between two checks, in which it can get the interpreter.
    """
    deadline = time.monotonic() + PATIENCE.total_seconds()
    before = None
    while (now := _sleep_of(thread)) is None or now != before:
        assert thread.is_alive(), "the thread has ended without waiting"
        assert time.monotonic() < deadline, "the thread waits for nothing"
        before = now
        time.sleep(0.001)


class Background:
    """A function on a thread of its own, whose end is waited for with a deadline."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._function = function
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._has_begun.set()
        try:
            self.result = self._function()
        except BaseException as error:
            self.error = error

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def until_asleep(self) -> Background:
        """Itself, once it sleeps inside what the function calls."""
        assert self._has_begun.wait(PATIENCE.total_seconds())
        wait_until_asleep(self._thread)
        return self

    def join(self, seconds: float = 60.0) -> object:
        """What the function returned; raises what it raised."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"still running after {seconds} s"
        if self.error is not None:
            raise self.error
        return self.result


def join_all(threads: Iterable[Background]) -> list[object]:
    return [thread.join() for thread in threads]


@contextlib.contextmanager
def kind_of(name: str, folder: Path) -> Iterator[Kind]:
    kind = {**KINDS, "written": Written}[name](folder)
    try:
        yield kind
    finally:
        kind.close()


# What processes do with a store that came to them as a pickle.


def count_beside_others(store: Store) -> None:
    for _ in range(50):
        store.add("n", 1)
    store.set(f"pid/{os.getpid()}", "done")


def die_holding(store: Store, lease: float) -> None:
    """Without a word, while the lease is being renewed."""
    with store.lock("lock", lease=lease):
        store.set("held", "")
        store.wait(["die"])
        os.kill(os.getpid(), signal.SIGKILL)


def hold_and_pause(store: Store, lease: float) -> None:
    """Held up until others have the lock; says what it is told then."""
    lock = store.lock("lock", lease=lease)
    lock.acquire()
    store.set("held", "")
    os.kill(os.getpid(), signal.SIGSTOP)
    was_held = lock.is_held
    try:
        lock.release()
    except RuntimeError as error:
        store.set("told", f"{was_held} {error}")
