# SPDX-License-Identifier: BSD-3-Clause
"""How clients of one host reach a TCPStore's server: by its Unix socket if it is on the
same host, or by a relay, whose connection they share.  tests/c/test_shortcut.c and
tests/c/test_relay.c cover other processes in their place and relays that are killed."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from store_bytes import PING, VALIDATE, unix_names
from store_kinds import Background, client, master

import distlite as dist
from distlite import DistStoreError, TCPStore

TOKEN = "correct horse battery staple"
CALLS = 32  # after which a connection moves
CALLS_TLS = 1024
OLDER: set[str] = set()  # sockets of stores that the process had before a test
RELAY = "DISTLITE_STORE_RELAY"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "TLS", "STORE_UNIX", "STORE_RELAY"):
        monkeypatch.delenv(f"DISTLITE_{name}", raising=False)


@pytest.fixture(autouse=True)
def older() -> None:
    OLDER.clear()
    OLDER.update(unix_names(os.getpid()))


@pytest.fixture
def server(uses_libuv: bool) -> Iterator[TCPStore]:
    with master(use_libuv=uses_libuv) as store:
        yield store


def work(store: TCPStore, calls: int = CALLS + 1) -> None:
    for _ in range(calls):
        store.num_keys()


def own_sockets() -> set[str]:
    return unix_names(os.getpid()) - OLDER


def knock(name: str) -> socket.socket:
    stranger = socket.socket(socket.AF_UNIX)
    stranger.settimeout(60)
    stranger.connect(f"\0{name}")
    return stranger


def is_closed(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(100) == b""
    except ConnectionResetError:
        return True


def test_connections_of_the_host_move(server):
    with client(server.port) as store:
        store.set("key", "value")
        text = repr(store)
        work(store)
        assert store.stats()["unix_clients"] == 1
        assert re.sub(r"fd=\d+", "", repr(store)) == re.sub(r"fd=\d+", "", text)
        assert store.get("key") == b"value"
        again = pickle.loads(pickle.dumps(store))
        with again, store.clone() as clone:
            work(again)
            work(clone)
            assert clone.get("key") == b"value"
            assert store.stats()["unix_clients"] == 3
    work(server)
    assert server.stats()["unix_clients"] >= 1


def test_the_token_is_proved_there_as_well(uses_libuv):
    with master(use_libuv=uses_libuv, token=TOKEN) as server:
        (name,) = own_sockets()
        with client(server.port, token=TOKEN) as store:
            work(store)
            assert store.stats()["unix_clients"] == 1
            with knock(name) as stranger:
                stranger.sendall(VALIDATE + PING)
                reply = stranger.recv(1000)
                assert reply[:4] == b"\xff" * 4 and b"asks for the job's token" in reply
                assert is_closed(stranger)
            assert store.stats()["closed"]["denied"] == 1


def test_tls_is_spoken_there_as_well(uses_libuv):
    arguments = {"token": TOKEN, "tls": "psk"}
    with master(use_libuv=uses_libuv, **arguments) as server:
        (name,) = own_sockets()
        with client(server.port, **arguments) as store:
            work(store, CALLS_TLS - 2)
            assert store.stats()["unix_clients"] == 0
            work(store, 2)
            assert store.stats()["unix_clients"] == 1
            with knock(name) as stranger:
                stranger.sendall(VALIDATE + PING)
                assert b"speaks TLS only" in stranger.recv(1000)
                assert is_closed(stranger)


def test_strangers_there_are_refused_as_over_tcp(uses_libuv):
    with master(use_libuv=uses_libuv) as server, ExitStack() as stack:
        (name,) = own_sockets()
        for text in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), VALIDATE + b"\x7f"):
            stranger = stack.enter_context(knock(name))
            stranger.sendall(text)
            assert is_closed(stranger)
        with client(server.port) as store:
            work(store)
            store.set("key", "value")
            assert store.get("key") == b"value"
        told = server.stats()
        assert told["closed"]["protocol"] == 3
        assert told["unix_clients"] <= 1


def test_descriptors_that_strangers_send_are_closed(server):
    (name,) = own_sockets()
    with knock(name) as stranger, open(os.devnull) as file:
        before = len(os.listdir("/proc/self/fd"))
        stranger.sendall(VALIDATE)
        for _ in range(20):
            socket.send_fds(stranger, [PING], [file.fileno()] * 10)
        for _ in range(20):
            assert stranger.recv(4) == PING[1:]
        assert len(os.listdir("/proc/self/fd")) <= before + 1


def test_nothing_is_left_of_the_socket(uses_libuv):
    with master(use_libuv=uses_libuv) as server:
        (name,) = own_sockets()
        work(server)
        if os.fork() == 0:
            os._exit(0 if own_sockets() == set() else 1)
        assert os.wait()[1] == 0
        assert server.stats()["unix_clients"] == 1
    assert own_sockets() == set()
    with pytest.raises(ConnectionRefusedError):
        knock(name)


def test_a_stopped_move_lets_the_call_go_on(server):
    """Threads that close the store while connections move."""
    for _ in range(20):
        store = client(server.port)
        work(store, CALLS - 2)
        closer = threading.Thread(target=store.close)
        closer.start()
        try:
            work(store, 4)
        except DistStoreError as error:
            assert "closed" in str(error)
        closer.join()


def test_stores_use_the_relay_in_the_environment(server, monkeypatch):
    with dist.store_relay("127.0.0.1", server.port) as relay:
        assert isinstance(relay, dist.StoreRelay)
        assert relay.address == f"{relay.name}@127.0.0.1:{server.port}"
        monkeypatch.setenv(RELAY, relay.address)
        stores = [client(server.port) for _ in range(3)]
        assert relay.is_connected
        stats = server.stats()
        assert stats["relays"] == 1 and stats["relayed_clients"] == 3
        stores[0].set("a", "1")
        assert stores[1].get("a") == b"1" and stores[2].add("n", 2) == 2
        assert str(server.port) in repr(stores[0])
        copy = stores[0].clone()
        assert copy.get("a") == b"1" and server.stats()["relayed_clients"] == 4
    assert not relay.is_connected
    assert repr(relay) == f"<StoreRelay {relay.address}, closed>"
    # They go on without it.
    assert stores[0].add("n", 2) == 4 and stores[1].get("a") == b"1"
    assert server.stats()["relays"] == 0
    relay.close()


def test_the_same_name_again(server):
    relay = dist.store_relay("127.0.0.1", server.port)
    with pytest.raises(dist.DistNetworkError, match=f"@{relay.name}: .*in use"):
        dist.store_relay("127.0.0.1", server.port, name=relay.name)
    relay.close()
    with dist.store_relay("127.0.0.1", server.port, name=relay.name) as again:
        assert again.address == relay.address


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"port": 0}, ValueError, "port must be that of the server"),
        ({"port": 70000}, ValueError, "port must be in 0..65535"),
        ({"port": "1"}, TypeError, "port"),
        ({"host": "http://a"}, ValueError, "host must be a name or an address"),
        ({"name": "relay"}, ValueError, "32 hexadecimal digits"),
        ({"name": 1}, TypeError, "name"),
        ({"tls": "on"}, ValueError, "tls"),
        ({"token": ""}, ValueError, "token"),
    ],
)
def test_invalid_arguments(keywords, error, text):
    with pytest.raises(error, match=text):
        dist.store_relay(**{"host": "127.0.0.1", "port": 1, **keywords})


def test_an_invalid_variable(server, monkeypatch):
    monkeypatch.setenv(RELAY, f"127.0.0.1:{server.port}")
    with pytest.raises(ValueError, match="NAME@HOST:PORT"):
        client(server.port)


# Ends with its standard input.
RELAY_PROCESS = """
import sys, time
import distlite as dist
relay = dist.store_relay("127.0.0.1", int(sys.argv[1]))
until = time.monotonic() + 20
while not relay.is_connected and time.monotonic() < until:
    time.sleep(0.005)
print(relay.address, flush=True)
sys.stdin.read()
"""


def test_a_relay_that_is_stopped(server, monkeypatch, capfd):
    """It is named, and the server is used without it."""
    with subprocess.Popen(
        [sys.executable, "-c", RELAY_PROCESS, str(server.port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        address = process.stdout.readline().strip()
        monkeypatch.setenv(RELAY, address)
        store = client(server.port)
        waiting = client(server.port)
        getter = Background(lambda: waiting.get("key")).until_asleep()
        os.kill(process.pid, signal.SIGSTOP)
        assert store.add("n", 1) == 1
        server.set("key", "value")
        assert getter.join() == b"value"
        with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms"):
            store.wait(["none"], 0.1)
        os.kill(process.pid, signal.SIGCONT)
        assert store.add("n", 1) == 2
        process.stdin.close()
    text = capfd.readouterr().err
    assert f"relay @{address.partition('@')[0]} (process {process.pid})" in text
    assert "does not answer" in text and "; connecting to the server directly" in text
