# SPDX-License-Identifier: BSD-3-Clause
"""TCPStore: making one, who serves whom, what is said when it fails, and what a server
tells of itself."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from ports import reserve_port
from store_kinds import PATIENCE, Background, client, join_all, master

from distlite import (
    DistNetworkError,
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)
from distlite.tools import store_facts
from distlite.tools.job import Job


def test_properties(uses_libuv: bool):
    with master(use_libuv=uses_libuv) as store, client(store.port) as other:
        assert 0 < store.port < 65536
        assert store.host == other.host == "127.0.0.1"
        assert store.libuvBackend is uses_libuv
        assert other.port == store.port
        assert store.timeout == PATIENCE
        for name in ("host", "port", "libuvBackend"):
            with pytest.raises(AttributeError):
                setattr(store, name, None)


def test_the_default_timeout_is_five_minutes():
    with TCPStore("localhost", 0, is_master=True) as store:
        assert store.timeout == timedelta(seconds=300)
    with TCPStore("localhost", 0, is_master=True, timeout=None) as store:
        assert store.timeout == timedelta(seconds=300)


def test_representation():
    with master() as store, client(store.port) as other:
        end = rf"\[?\S+\]?:{store.port}"
        shape = (
            r"TCPStore\(client=TCPClient\(SocketImpl\(fd=\d+, addr=\S+, "
            rf"remote={end}\)\), server=%s\)"
        )
        assert re.fullmatch(shape % rf"TCPServer\(port={store.port}\)", repr(store))
        assert re.fullmatch(shape % "<nullptr>", repr(other))
        assert "TCPStore(" in repr(store)
    assert "TCPStore(" in repr(store)  # closed


@pytest.mark.parametrize(("text", "expected"), [("0", False), ("1", True)])
def test_the_environment_chooses_where_nobody_says(monkeypatch, text, expected):
    monkeypatch.setenv("USE_LIBUV", text)
    with master() as store:
        assert store.libuvBackend is expected
    with master(use_libuv=not expected) as store:
        assert store.libuvBackend is not expected


def test_an_odd_environment_is_an_error(monkeypatch):
    monkeypatch.setenv("USE_LIBUV", "maybe")
    with pytest.raises(
        ValueError,
        match="USE_LIBUV must be 1 or 0, true or false, yes or no, not 'maybe'",
    ):
        master()
    with master(use_libuv=True):
        pass


def test_libuv_without_a_word(monkeypatch):
    monkeypatch.delenv("USE_LIBUV", raising=False)
    with master() as store:
        assert store.libuvBackend is True


def test_workers_are_waited_for(uses_libuv: bool):
    port = reserve_port()
    is_over = threading.Event()

    def worker() -> bytes:
        with client(port, world_size=3) as store:
            return store.get("key")

    def first() -> None:
        with master(port, world_size=3, use_libuv=uses_libuv) as store:
            assert store.num_keys() == 1  # its own count of workers
            assert store.list_keys() == []
            store.set("key", "value")
            assert is_over.wait(PATIENCE.total_seconds())

    workers = [Background(worker)]
    leader = Background(first)
    time.sleep(0.1)  # as long as it would take to go on wrongly
    assert not leader.is_done()
    workers.append(Background(worker))
    assert join_all(workers) == [b"value"] * 2
    is_over.set()
    leader.join()


def test_missing_workers_are_counted():
    """A store that no other host reaches says that, too."""
    began = time.monotonic()
    text = r"Timed out after 0?\.?\d+ ?\w* waiting for clients. 1/3 clients joined."
    only = r"listens at 127.0.0.1:\d+ only"
    with pytest.raises(DistStoreError, match=rf"(?s){text}.*{only}"):
        TCPStore("127.0.0.1", 0, 3, is_master=True, timeout=0.3)
    assert 0.29 < time.monotonic() - began < 10
    with pytest.raises(DistStoreError, match=text) as caught:
        TCPStore("0.0.0.0", 0, 3, is_master=True, timeout=0.1)
    assert "only" not in str(caught.value)


def test_nobody_is_waited_for_on_request():
    with TCPStore(
        "127.0.0.1", 0, 3, True, timedelta(seconds=5), wait_for_workers=False
    ) as store:
        assert store.num_keys() in (0, 1)


def test_a_refused_connection_is_an_error_in_time():
    port = reserve_port()
    began = time.monotonic()
    text = rf"127.0.0.1:{port} on this host itself .*refused.*check that.*MASTER_ADDR"
    with pytest.raises(DistNetworkError, match=text):
        client(port, timeout=0.2)
    assert time.monotonic() - began < 5


def test_an_unknown_host_is_an_error():
    with pytest.raises(
        DistNetworkError,
        match=r"client socket has timed out after.*no\.such\.host\.invalid.* "
        "check that .* MASTER_ADDR is a name by which this host reaches it",
    ):
        TCPStore("no.such.host.invalid", 1, timeout=0.5)
    with pytest.raises(
        DistNetworkError,
        match=r"^no\.such\.host\.invalid: .*; check that MASTER_ADDR is a name or an "
        "address of the host of rank 0",
    ):
        TCPStore("no.such.host.invalid", 0, is_master=True, timeout=0.5)


def test_a_client_may_come_before_the_server():
    port = reserve_port()
    # Asleep, it has been refused, and will try again.
    early = Background(lambda: client(port).get("key")).until_asleep()
    with TCPStore("127.0.0.1", port, is_master=True, timeout=PATIENCE) as store:
        store.set("key", "value")
        assert early.join() == b"value"


@pytest.mark.parametrize("port_argument", [0, 1])
def test_a_handed_over_socket_s_port(port_argument: int):
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    arguments = {"is_master": True, "timeout": 5, "master_listen_fd": bound.detach()}
    if port_argument == 0:
        with TCPStore("127.0.0.1", 0, **arguments) as store:
            assert store.port == port
    else:
        text = rf"bound to port {port}, expected to be bound to port 1"
        with pytest.raises((DistStoreError, DistNetworkError, ValueError), match=text):
            TCPStore("127.0.0.1", 1, **arguments)


@pytest.mark.parametrize("is_shared", [False, True])
@pytest.mark.parametrize("is_copy", [False, True])
def test_a_socket_that_is_served_is_not_taken_again(is_shared, is_copy):
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    fd = bound.detach()
    copy = os.dup(fd) if is_copy else fd
    arguments = {"is_master": True, "timeout": 5, "multi_tenant": is_shared}
    with TCPStore("127.0.0.1", 0, master_listen_fd=fd, **arguments) as store:
        for port in (0, store.port):
            with pytest.raises(ValueError, match=rf"master_listen_fd={copy} is the"):
                TCPStore("127.0.0.1", port, master_listen_fd=copy, **arguments)
        with TCPStore("127.0.0.1", store.port, timeout=5) as other:
            other.set("key", "value")
        assert store.get("key") == b"value"
    if is_copy:
        os.close(copy)


def test_a_client_leaves_the_socket_of_another_store_open():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    fd = bound.detach()
    with TCPStore(
        "127.0.0.1", 0, is_master=True, timeout=PATIENCE, master_listen_fd=fd
    ) as store:
        with TCPStore(
            "127.0.0.1", store.port, timeout=PATIENCE, master_listen_fd=fd
        ) as other:
            other.set("key", "value")
        with client(store.port) as later:
            assert later.get("key") == b"value"


def test_a_client_asks_no_other_server_for_anything(uses_libuv: bool):
    port = reserve_port()
    first = master(port, use_libuv=uses_libuv)
    other = client(port)
    other.set("key", "first")
    text = pickle.dumps(other)
    with pickle.loads(text) as same:
        assert same.get("key") == b"first"
    first.close()
    with master(port, use_libuv=uses_libuv) as second, client(port) as newcomer:
        newcomer.set("key", "second")
        for ask in (
            lambda: other.get("key"),
            lambda: other.set("key", "mine"),
            lambda: other.queue_push("queue", "item"),
            other.clone,
            lambda: pickle.loads(text),
        ):
            with pytest.raises(DistNetworkError, match=f":{port} is another server"):
                ask()
        assert second.get("key") == b"second"
        assert second.queue_len("queue") == 0
    other.close()


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_nothing_is_left_open(uses_libuv: bool):
    def round_trip() -> None:
        store = master(use_libuv=uses_libuv)
        others = [client(store.port) for _ in range(3)]
        waiter = Background(lambda: others[0].get("key"))
        others[1].set("key", "value")
        waiter.join()
        others[2].close()

    round_trip()
    before = open_descriptors(), threading.active_count()
    threads = len(list(Path("/proc/self/task").iterdir()))
    for _ in range(5):
        round_trip()
    assert (open_descriptors(), threading.active_count()) == before
    deadline = time.monotonic() + 10
    # One that was joined a moment ago may still be on its way out.
    while len(list(Path("/proc/self/task").iterdir())) > threads:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_failed_constructor_leaves_nothing_open():
    port = reserve_port()

    def attempt() -> None:
        with pytest.raises(DistNetworkError):
            client(port, timeout=0)
        # No second client comes; on a busy machine not even the server answers.
        with pytest.raises((DistStoreError, DistNetworkError)):
            TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=0.05)

    attempt()
    before = open_descriptors()
    for _ in range(3):
        attempt()
    assert open_descriptors() == before


def test_a_full_store_says_so(monkeypatch, uses_libuv: bool):
    monkeypatch.setenv("DISTLITE_STORE_KEYS", "100")
    monkeypatch.setenv("DISTLITE_STORE_BYTES", str(1 << 20))
    store = master(use_libuv=uses_libuv)
    with pytest.raises(MemoryError, match=r"the store is full: .*DISTLITE_STORE_BYTES"):
        store.set("large", "x" * (2 << 20))
    with pytest.raises(MemoryError, match=r"the store is full: it holds 100 keys"):
        for number in range(101):
            store.set(str(number), "")
    store.delete_key("7")
    store.set("new", "value")
    assert store.get("new") == b"value"


# What a server tells of itself, and what the tools make of it.

SERVER = """
import resource, sys, time
from distlite import TCPStore
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=sys.argv[1] == "1")
store.set("key", "value")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
print(store.port, flush=True)
sys.stdin.readline()
# Its thread may not have come to the last connections yet.
while (count := store.stats()["refusals"]["connections"]) == 0:
    time.sleep(0.01)
print(count, flush=True)
"""


def test_a_server_tells_what_it_holds_and_refused(monkeypatch, uses_libuv):
    monkeypatch.setenv("DISTLITE_STORE_KEYS", "3")
    with master(use_libuv=uses_libuv) as store:
        before = store.stats()
        assert before["keys"] == 0 and before["clients"] == 1
        store.multi_set(["a", "b"], ["1", "2"])
        store.queue_push("queue", "item")
        with pytest.raises(MemoryError):
            store.set("c", "3")
        with socket.create_connection(("127.0.0.1", store.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n")
            assert stranger.recv(100) == b""
        told = store.stats()
    assert told["keys"] == 2 and told["names"] == 3 and told["waiters"] == 0
    assert told["bytes"] > before["bytes"]
    assert told["requests"] >= before["requests"] + 4
    assert told["refusals"]["keys"] == 1 and told["refusals"]["bytes"] == 0
    assert told["closed"]["protocol"] == 1
    assert len(told["identity"]) == 32 and told["identity"] == before["identity"]
    assert told["replies"]["slots"] > 0 and told["replies"]["repeated"] == 0
    assert told["uptime_ms"] >= before["uptime_ms"] and told["slowest_turn_us"] > 0
    assert set(told["refusals"]) == {
        *("validate", "stall", "connections", "keys", "bytes", "pending"),
        "replies",
    }


def test_connections_that_have_to_wait_for_descriptors_are_counted(uses_libuv):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(int(uses_libuv))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    port = int(process.stdout.readline())
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            stack.enter_context(client)
        count, _ = process.communicate("\n", timeout=60)
    assert int(count) > 0


def test_other_kinds_of_stores(tmp_path):
    store = HashStore()
    store.set("key", "value")
    told = store.stats()
    assert (told["keys"], told["names"], told["waiters"]) == (1, 1, 0)
    assert PrefixStore("view", store).stats() == told
    with pytest.raises(NotImplementedError, match="FileStore has no stats"):
        FileStore(str(tmp_path / "file")).stats()
    store.close()
    with pytest.raises(DistStoreError, match="closed"):
        store.stats()


def test_a_store_in_python_may_have_its_own():
    class Counting(Store):
        def stats(self):
            return {"keys": 7}

    store = Counting()
    assert store.stats() == {"keys": 7}
    with pytest.raises(NotImplementedError, match="Not implemented: .* has no stats"):
        PrefixStore("view", store).stats()


class Recording:
    """As much of a recording as finding the store takes."""

    rank = 0
    groups = ()

    def __init__(self, pid: int) -> None:
        self.pid = pid


def ask_for(environment: dict[str, str]) -> store_facts.Facts | None:
    rank = subprocess.Popen(
        ["sh", "-c", "echo started; read line"],
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == b"started\n"
    try:
        return store_facts.store_of(Job([Recording(rank.pid)], lambda _: "running"))
    finally:
        rank.communicate()


def test_the_store_of_a_job_is_found_by_its_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    monkeypatch.delenv("MASTER_PORT", raising=False)
    assert ask_for({}) is None
    with master(token="secret") as store:
        store.set("key", "value")
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
        told = ask_for({**place, "DISTLITE_TOKEN": "secret"})
        assert told is not None and told["keys"] == 1
        line = store_facts.describe(told)
        assert line.startswith(f"store 127.0.0.1:{store.port}: 1 keys, ")
        assert "2 clients, 0 waiting; " in line and "refusals" not in line
        path = tmp_path / "token"
        path.write_text("secret\n")
        told = ask_for({**place, "DISTLITE_TOKEN_FILE": str(path)})
        assert told is not None and told["keys"] == 1
        refused = ask_for(place)
        assert refused is not None and "asks for the job's token" in refused["error"]
        assert store_facts.describe(refused).endswith(refused["error"])
        assert store.stats()["closed"]["denied"] == 1


def test_what_was_refused_is_shown():
    facts = {
        **{"keys": 1, "bytes": 5 << 20, "clients": 2, "waiters": 0, "requests": 3},
        **{"uptime_ms": 1500, "slowest_turn_us": 120},
        **{"input_bytes": 10, "output_bytes": 3 << 30},
        **{"refusals": {"keys": 2, "bytes": 0}, "closed": {"protocol": 4}},
    }
    assert store_facts.describe(facts) == (
        "store: 1 keys, 5.0 MiB; 2 clients, 0 waiting; 3 requests in 1.5 s; slowest "
        "turn 120 us; 10 B half received, 3.0 GiB not "
        "read; refusals: keys 2; closed: protocol 4"
    )
