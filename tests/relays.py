# SPDX-License-Identifier: BSD-3-Clause
"""A man in the middle: relays TCP connections, keeps what it sees, and changes it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

# Takes a direction (True: from the client) and the offset of the bytes in it; returns
# the bytes to be passed on, or raises Cut.
Change = Callable[[bool, int, bytes], bytes]


class Cut(Exception):
    """Ends a connection after these bytes."""

    def __init__(self, last: bytes) -> None:
        self.last = last


class Relay:
    """Use as a context; `port` is where clients connect."""

    def __init__(self, server_port: int, change: Change | None = None) -> None:
        self.server_port = server_port
        self.change = change
        self.seen = bytearray()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Relay:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(20)
        self.cut()
        for thread in self._threads:
            thread.join(20)
            assert not thread.is_alive()
        for one in self._sockets:
            one.close()

    def cut(self) -> None:
        """Ends all connections."""
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", self.server_port))
                self._sockets += [client, server]
                self._start(self._pass_on, client, server, True)
                self._start(self._pass_on, server, client, False)

    def _pass_on(self, source: socket.socket, to: socket.socket, is_up: bool) -> None:
        with contextlib.suppress(OSError):
            for data in self._changed(source, is_up):
                to.sendall(data)
        for one in (source, to):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _changed(self, source: socket.socket, is_up: bool) -> Iterator[bytes]:
        offset = 0
        while data := source.recv(65536):
            self.seen += data
            try:
                yield data if self.change is None else self.change(is_up, offset, data)
            except Cut as cut:
                yield cut.last
                return
            offset += len(data)


def flip(offset: int, is_up: bool) -> Change:
    """Changes one bit of the byte at `offset` of the first connection only."""
    is_done = False

    def change(up: bool, begin: int, data: bytes) -> bytes:
        nonlocal is_done
        if is_done or up != is_up or not begin <= offset < begin + len(data):
            return data
        is_done = True
        changed = bytearray(data)
        changed[offset - begin] ^= 0x04
        return bytes(changed)

    return change


def truncate(offset: int, is_up: bool) -> Change:
    """Passes `offset` bytes on, then cuts the connection; the first one only."""
    is_done = False

    def change(up: bool, begin: int, data: bytes) -> bytes:
        nonlocal is_done
        if is_done or up != is_up or begin + len(data) <= offset:
            return data
        is_done = True
        raise Cut(data[: offset - begin])

    return change


class Cutter:
    """A change that cuts connections on demand."""

    def __init__(self) -> None:
        self.is_up = False
        self.left: int | None = None  # bytes before the cut; None: there is none

    def __call__(self, up: bool, begin: int, data: bytes) -> bytes:
        if self.left is None or up != self.is_up:
            return data
        if len(data) < self.left:
            self.left -= len(data)
            return data
        left, self.left = self.left, None
        raise Cut(data[:left])
