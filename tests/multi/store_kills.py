# SPDX-License-Identifier: BSD-3-Clause
"""A store's server that keeps a journal is killed at random moments, over and over:
`store_kills.py [COUNT [epoll|libuv [never|interval|always]]]`.

One process forks the servers, all on the same socket and journal.  Clients go on
meanwhile and repeat what they have no reply to, as every client does; in the end all
that was acknowledged has to be there, once.
"""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable

from distlite import DistNetworkError, DistStoreError, QueueEmptyError, TCPStore

# Reads lines: each kills the server, if there is one, and starts the next; an empty one
# only kills.  The child that serves ends with this process, whatever happens to it.
SERVERS = """
import ctypes, os, signal, sys
from distlite import TCPStore
listener, path, kind, sync = int(sys.argv[1]), *sys.argv[2:]
child = None
for line in sys.stdin:
    if child is not None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        child = None
    if line.strip():
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            store = TCPStore(
                *("127.0.0.1", int(line)), is_master=True, wait_for_workers=False,
                master_listen_fd=listener, use_libuv=kind == "libuv",
                journal=path, journal_sync=sync,
            )
            print("started", flush=True)
            signal.pause()
"""
TIMEOUT = 60.0
# Values of a size that has the file replaced while servers are killed.
BIGS = 8


def big(number: int) -> bytes:
    """The value of this number, 50 KiB to 400 KiB."""
    return f"{number} ".encode() * (10_000 + number % 50_000)


class Servers:
    """Those of one journal, one after the other."""

    def __init__(self, path: str, kind: str, sync: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self._listener.getsockname()[1]
        fd = self._listener.fileno()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVERS, str(fd), path, kind, sync],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(fd,),
            text=True,
        )

    def restart(self) -> None:
        """Kills the one that runs and returns when the next one serves."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{self.port}\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "started\n"

    def close(self) -> None:
        self._process.communicate("\n", timeout=TIMEOUT)
        self._listener.close()


class Client:
    """Calls one function until it is told to end; that servers end is no error."""

    def __init__(self, port: int, call: Callable[[TCPStore, int], None]) -> None:
        self.done: list[int] = []  # numbers of acknowledged calls
        self.error: BaseException | None = None
        self._call = call
        self._port = port
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            store = self._connect()
            number = 0
            while not self._is_over.is_set():
                number += 1
                try:
                    self._call(store, number)
                    self.done.append(number)
                except QueueEmptyError:
                    continue
        except BaseException as error:
            self.error = error

    def _connect(self) -> TCPStore:
        while True:
            try:
                return TCPStore("127.0.0.1", self._port, timeout=TIMEOUT)
            except (DistNetworkError, DistStoreError):
                time.sleep(0.01)

    def end(self) -> None:
        self._is_over.set()
        self._thread.join(TIMEOUT)
        assert not self._thread.is_alive(), "a call hangs"
        if self.error is not None:
            raise self.error


def kill_servers(count: int, kind: str, sync: str, folder: str, seed: int = 1) -> str:
    """Kills as many servers and checks what is left; returns what has been done."""
    servers = Servers(os.path.join(folder, "journal"), kind, sync)
    moments = random.Random(seed)
    popped: list[bytes] = []
    servers.restart()
    sets = Client(servers.port, lambda s, n: s.set(f"set/{n}", str(n)))
    adds = Client(servers.port, lambda s, n: s.add("count", 1) and None)
    appends = Client(servers.port, lambda s, n: s.append("text", f"{n},"))
    bigs = Client(servers.port, lambda s, n: s.set(f"big/{n % BIGS}", big(n)))
    pushes = Client(servers.port, lambda s, n: s.queue_push("queue", str(n)))
    pops = Client(
        servers.port, lambda s, n: popped.append(s.queue_pop("queue", block=False))
    )
    try:
        for _ in range(count):
            time.sleep(moments.random() * 0.03)
            servers.restart()
        clients = (sets, adds, appends, bigs, pushes, pops)
        for client in clients:
            client.end()
        for _ in range(2):
            servers.restart()
            with TCPStore("127.0.0.1", servers.port, timeout=TIMEOUT) as store:
                _check(store, sets, adds, appends)
                for number in bigs.done[-BIGS:]:
                    assert store.get(f"big/{number % BIGS}") == big(number)
        with TCPStore("127.0.0.1", servers.port, timeout=TIMEOUT) as store:
            _check_queue(store, pushes, popped)
    finally:
        servers.close()
    done = sum(len(client.done) for client in clients)
    return f"{count} kills ({kind}, {sync}): {done} calls, each done once"


def _check(store: TCPStore, sets: Client, adds: Client, appends: Client) -> None:
    lost = [n for n in sets.done if not store.check([f"set/{n}"])]
    assert not lost, f"sets that were acknowledged and are lost: {lost}"
    assert all(store.get(f"set/{n}") == str(n).encode() for n in sets.done[-100:])
    assert store.add("count", 0) == len(adds.done)
    assert store.get("text").decode() == "".join(f"{n}," for n in appends.done)


def _check_queue(store: TCPStore, pushes: Client, popped: list[bytes]) -> None:
    items = list(popped)
    while store.queue_len("queue") > 0:
        items.append(store.queue_pop("queue", block=False))
    assert items == [str(n).encode() for n in pushes.done], "items are lost or doubled"


def main() -> None:
    """Runs the servers that the command line names."""
    words = sys.argv[1:]
    count = int(words[0]) if words else 100
    kinds = words[1:2] or ["epoll", "libuv"]
    modes = words[2:3] or ["never", "interval", "always"]
    for kind in kinds:
        for sync in modes:
            with tempfile.TemporaryDirectory() as folder:
                began = time.monotonic()
                told = kill_servers(count, kind, sync, folder, seed=count)
                print(f"{told}; {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
