# SPDX-License-Identifier: BSD-3-Clause
"""Thousands of launchers in one thread: the code of distlite.launch.nodes as it is, on
greenlets in place of threads.

`take_over()` gives that module an Event and a Thread of greenlets, and a store whose
calls let the others go on until the reply has come.  It speaks the protocol of
docs/wire.md, as clients on other hosts do, and makes the same requests as the library's
client.
"""

from __future__ import annotations

import heapq
import itertools
import os
import select
import socket
import struct
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from distlite._C import DistStoreError
from distlite.launch import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VALIDATE, SET, COMPARE_SET, GET, ADD, CHECK, WAIT = 0, 1, 2, 3, 4, 5, 6
APPEND, MULTI_GET, PING = 9, 10, 13
CHECKED, MAGIC, NOT_FOUND = 0x80, 0x3C85F7CE, 5
# The replies to PING and the hello.
GREETING_SIZE = 4 + 64
EVENTS, SLICE, RECEIVE_SIZE = 512, 0.05, 1 << 16


class Hub:
    """Lets greenlets wait; its own is the one that calls run()."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._main = getcurrent()
        self.joining = 0  # stores to which the server has not replied yet
        self._readers: dict[int, greenlet] = {}
        # By what waits for a time: the number of the wait, which others do not end.
        self._waits: dict[greenlet, int] = {}
        self._timers: list[tuple[float, int, greenlet]] = []
        self._numbers = itertools.count()

    def add(self, fd: int) -> None:
        self._poll.register(fd, select.EPOLLIN)

    def start(self, function: Callable[[], object]) -> None:
        """Runs the function until it waits for the first time."""
        greenlet(function, self._main).switch()

    def await_readable(self, fd: int) -> None:
        self._readers[fd] = getcurrent()
        self._main.switch()

    def await_time(self, seconds: float) -> None:
        """Returns earlier after a wake()."""
        self._waits[getcurrent()] = number = next(self._numbers)
        entry = (time.monotonic() + seconds, number, getcurrent())
        heapq.heappush(self._timers, entry)
        self._main.switch()

    def wake(self, waiting: greenlet) -> None:
        heapq.heappush(self._timers, (0.0, self._waits[waiting], waiting))

    def run(self, until: Callable[[], bool]) -> None:
        """Lets all others go on until it is so."""
        while not until():
            pause = self._timers[0][0] - time.monotonic() if self._timers else SLICE
            for fd, _ in self._poll.poll(max(0.0, min(pause, SLICE)), EVENTS):
                if fd in self._readers:
                    self._readers.pop(fd).switch()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                _, number, waiting = heapq.heappop(self._timers)
                if self._waits.get(waiting) == number:
                    del self._waits[waiting]
                    waiting.switch()


class WireStore:
    """A client of a TCPStore's server."""

    def __init__(self, hub: Hub, host: str, port: int, prefix: str = "/") -> None:
        self._hub, self._prefix = hub, prefix
        hub.joining += 1
        self._received = bytearray()
        self._socket = connect(host, port)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = self._socket.fileno()
        hub.add(self._fd)
        hello = b"distlite/3" + os.urandom(16) + struct.pack("<Q", 1)
        head = struct.pack("<BIBIBQ", VALIDATE, MAGIC, PING, 0, CHECK, 1)
        self._socket.sendall(head + blob(hello))
        self._take(GREETING_SIZE)
        hub.joining -= 1

    def below(self, prefix: str) -> WireStore:
        """Puts this before all names, as a PrefixStore does."""
        self._prefix += f"{prefix}/"
        return self

    def set_timeout(self, timeout: float) -> None:
        """What follows does not wait."""

    def set(self, key: str, value: str) -> None:
        self._ask(SET, self._name(key) + blob(value.encode()))

    def append(self, key: str, value: str) -> None:
        self._ask(APPEND, self._name(key) + blob(value.encode()))

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        values = blob(expected.encode()) + blob(desired.encode())
        self._ask(COMPARE_SET, self._name(key) + values)
        return self._take_blob()

    def add(self, key: str, number: int) -> int:
        self._ask(ADD, self._name(key) + struct.pack("<q", number))
        return self._take_number()

    def get(self, key: str, timeout: float | None = None) -> bytes:
        if self._ask(GET, self._name(key)) == NOT_FOUND:
            self.wait([key])
            self._ask(GET, self._name(key))
        return self._take_blob()

    def wait(self, keys: Sequence[str], timeout: float | None = None) -> None:
        """Waits for ever: what nodes wait for comes, or the measurement fails."""
        self._ask(WAIT, self._names(keys))
        self._take(1)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        self._ask(MULTI_GET, self._names(keys))
        return [self._take_blob() for _ in keys]

    def _name(self, key: str) -> bytes:
        return blob((self._prefix + key).encode())

    def _names(self, keys: Sequence[str]) -> bytes:
        return struct.pack("<Q", len(keys)) + b"".join(map(self._name, keys))

    def _ask(self, op: int, fields: bytes) -> int:
        """Returns the status, after which the plain reply follows."""
        self._socket.sendall(bytes([op | CHECKED]) + fields)
        status = self._take(1)[0]
        if status not in (0, NOT_FOUND):
            raise DistStoreError(self._take_blob().decode())
        if status == NOT_FOUND:
            self._take_blob()
        return status

    def _take_number(self) -> int:
        return int.from_bytes(self._take(8), "little", signed=True)

    def _take_blob(self) -> bytes:
        return self._take(self._take_number())

    def _take(self, size: int) -> bytes:
        while len(self._received) < size:
            self._hub.await_readable(self._fd)
            received = self._socket.recv(RECEIVE_SIZE, socket.MSG_DONTWAIT)
            if not received:
                raise DistStoreError("the server has closed the connection")
            self._received += received
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


def connect(host: str, port: int) -> socket.socket:
    """The server may not be there yet."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((host, port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def blob(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


class Event:
    """As nodes use threading's: one waits."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._is_set = False
        self._waiting: greenlet | None = None

    def set(self) -> None:
        self._is_set = True
        if self._waiting is not None:
            self._hub.wake(self._waiting)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float) -> None:
        if not self._is_set:
            self._waiting = getcurrent()
            self._hub.await_time(timeout)
            self._waiting = None


class Thread:
    """As nodes use threading's."""

    def __init__(self, hub: Hub, target: Callable[[], object]) -> None:
        self._hub, self._target = hub, target

    def start(self) -> None:
        self._hub.start(self._target)


def take_over(hub: Hub) -> None:
    """From now on the nodes of this process are the hub's."""
    module: Any = nodes
    module.threading = SimpleNamespace(
        Event=lambda: Event(hub),
        Thread=lambda target, daemon: Thread(hub, target),
        TIMEOUT_MAX=threading.TIMEOUT_MAX,
    )
    module.TCPStore = lambda host, port, **_: WireStore(hub, host, port)
    module.PrefixStore = lambda prefix, store: store.below(prefix)
