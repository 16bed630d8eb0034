# SPDX-License-Identifier: BSD-3-Clause
"""`TCPStore(..., journal=...)`: a server that is started again is the same server, also
when it is killed at random moments, over and over."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from store_kinds import master

from distlite import DistNetworkError, DistStoreError, QueueEmptyError, TCPStore

KINDS = pytest.mark.parametrize("use_libuv", [True, False])
MODES = pytest.mark.parametrize("sync", ["never", "interval", "always"])


def serve(path, use_libuv=True, sync="interval", **options) -> TCPStore:
    return master(use_libuv=use_libuv, journal=path, journal_sync=sync, **options)


@KINDS
def test_everything_is_there_again(tmp_path, use_libuv):
    path = tmp_path / "journal"
    names = [f"many/{i}" for i in range(300)]
    with serve(path, use_libuv) as store:
        store.set("value", "one")
        store.append("value", " two")
        assert store.add("count", 40) == 40
        assert store.compare_set("swap", "", "new") == b"new"
        store.set("gone", "")
        assert store.delete_key("gone")
        store.multi_set(names, [name.encode() for name in names])
        for item in ("a", "b", "c"):
            store.queue_push("queue", item)
        assert store.queue_pop("queue") == b"a"
        store.barrier("barrier", 1)
        store.set("large", b"x" * (8 << 20))
        told = store.stats()["journal"]
        assert told["bytes"] > 8 << 20 and told["writes"] > 8
        assert told["failures"] == 0
        count = store.num_keys()
        identity = store.stats()["identity"]
    assert (path.stat().st_mode & 0o777) == 0o600
    with serve(str(path), use_libuv) as store:
        assert store.num_keys() == count
        assert store.stats()["identity"] == identity
        assert store.get("value") == b"one two"
        assert store.add("count", 2) == 42
        assert store.get("swap") == b"new" and not store.check(["gone"])
        assert store.multi_get(names) == [name.encode() for name in names]
        assert store.queue_pop("queue") == b"b" and store.queue_len("queue") == 1
        assert len(store.get("large")) == 8 << 20
    with serve(path, use_libuv) as store:
        assert store.add("count", 0) == 42 and store.queue_pop("queue") == b"c"


@KINDS
def test_waits_end_as_without_a_journal(tmp_path, use_libuv):
    with serve(tmp_path / "journal", use_libuv) as store:
        found: list[bytes] = []
        with TCPStore("127.0.0.1", store.port) as other:
            thread = threading.Thread(target=lambda: found.append(other.get("late")))
            thread.start()
            keys = [f"k{i}" for i in range(100)]
            waiter = threading.Thread(target=lambda: other.wait(keys))
            waiter.start()
            store.set("late", "value")
            store.multi_set(keys, ["v"] * 100)
            thread.join(60)
            waiter.join(60)
            assert found == [b"value"] and not waiter.is_alive()


def test_arguments_are_checked(tmp_path):
    path = tmp_path / "journal"
    with pytest.raises(ValueError, match="only the master, which runs the server"):
        TCPStore("127.0.0.1", 1, journal=path)
    with pytest.raises(ValueError, match='"never", "interval" or "always"'):
        serve(path, sync="sometimes")
    with pytest.raises(TypeError):
        serve(5.0)
    with pytest.raises(ValueError, match="null byte"):
        serve("a\0b")
    with pytest.raises(DistStoreError, match="No such file or directory"):
        serve(tmp_path / "none" / "journal")
    path.write_text("a text\n")
    path.chmod(0o600)
    with pytest.raises(DistStoreError, match="it is not a journal of a store"):
        serve(path)
    path.chmod(0o644)
    with pytest.raises(ValueError, match=f"chmod 600 {path}"):
        serve(path)
    path.unlink()
    first = serve(path)
    with pytest.raises(ValueError, match="is in use by another server"):
        serve(path)
    first.close()
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ValueError, match="is a symbolic link"):
        serve(link)


def test_a_shared_server_has_one_journal(tmp_path):
    path = tmp_path / "journal"
    options = {"is_master": True, "multi_tenant": True}
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with TCPStore("127.0.0.1", port, **options, journal=path) as store:
        with TCPStore("127.0.0.1", port, **options, journal=path) as other:
            store.set("key", "value")
            assert other.get("key") == b"value"
        with TCPStore("127.0.0.1", port, **options) as other:
            assert other.get("key") == b"value"
        with pytest.raises(ValueError, match="has another one"):
            TCPStore("127.0.0.1", port, **options, journal=tmp_path / "other")
        assert store.get("key") == b"value"


FULL = """
import resource, signal, sys
from distlite import DistError, TCPStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=sys.argv[1] == "True",
                 journal=sys.argv[2])
other = store.clone()
store.set("before", "value")
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
refused = 0
for number in range(100):
    try:
        store.set(f"key/{number}", "value")
    except DistError as error:
        refused += 1
        text = str(error)
print(refused > 10, other.get("before"), other.check(["key/99"]))
print(text)
for call in (lambda: store.add("n", 1), lambda: store.queue_push("q", "i"),
             lambda: store.barrier("b", 1), lambda: store.delete_key("before"),
             lambda: store.multi_set(["k"] * 100, ["v"] * 100)):
    try:
        call()
        print("done")
    except DistError as error:
        pass
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
store.set("after", "value")
print(store.stats()["journal"]["failures"] > 0)
"""


@KINDS
def test_a_full_disk_is_told_to_who_changes(tmp_path, use_libuv):
    path = tmp_path / "journal"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(use_libuv), str(path)],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "True b'value' False\n"
        f"the store's journal {path}: writing: File too large\nTrue\n"
    )
    with serve(path, use_libuv) as store:
        assert store.check(["before", "after", "key/0"])
        assert not store.check(["n"])


def test_a_forked_child_does_not_hold_the_lock(tmp_path):
    path = tmp_path / "journal"
    code = (
        "import os, sys, distlite\n"
        "options = {'is_master': True, 'journal': sys.argv[1]}\n"
        "store = distlite.TCPStore('127.0.0.1', 0, **options)\n"
        "store.set('key', 'value')\n"
        "if os.fork() == 0:\n"
        "    print('forked', flush=True)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "forked\n"
    assert process.wait(60) == -signal.SIGKILL
    with serve(path) as store:
        assert store.get("key") == b"value"
    process.communicate("\n", timeout=60)


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


# A server that keeps a journal is killed at random moments.  One process forks the
# servers, all on the same socket and journal.  Clients continue and repeat what has no
# reply, as every client does; in the end all that was acknowledged is there, once.


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


def await_progress(clients: Sequence[Client]) -> None:
    """Waits until each has done something more."""
    before = [len(client.done) for client in clients]
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end and not all(
        client.error or len(client.done) > done
        for client, done in zip(clients, before, strict=True)
    ):
        time.sleep(0.001)


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
        clients = (sets, adds, appends, bigs, pushes, pops)
        for number in range(count):
            time.sleep(moments.random() * 0.03)
            # A client gives up a call for which several servers in turn have ended.
            if number % 2:
                await_progress(clients[:-1])
            servers.restart()
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


@KINDS
@MODES
def test_nothing_acknowledged_is_lost_when_servers_are_killed(
    tmp_path, use_libuv, sync
):
    kind = "libuv" if use_libuv else "epoll"
    print(kill_servers(5, kind, sync, str(tmp_path)))


@KINDS
def test_nothing_is_lost_over_tls_either(tmp_path, use_libuv, monkeypatch):
    """Each server proves the token, and knows clients and their calls again."""
    monkeypatch.setenv("DISTLITE_TOKEN", "the job's")
    monkeypatch.setenv("DISTLITE_TLS", "psk")
    kind = "libuv" if use_libuv else "epoll"
    print(kill_servers(5, kind, "interval", str(tmp_path), seed=3))


@pytest.mark.slow
@KINDS
@MODES
def test_nothing_is_lost_in_many_kills(tmp_path, use_libuv, sync):
    kind = "libuv" if use_libuv else "epoll"
    print(kill_servers(170, kind, sync, str(tmp_path), seed=2))
