# SPDX-License-Identifier: BSD-3-Clause
"""TCPStore by the Unix socket of a server on the same host: who moves there, who is let
in, and what strangers can do."""

from __future__ import annotations

import os
import pickle
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from store_bytes import VALIDATE, unix_names
from store_kinds import PATIENCE

from distlite import DistStoreError, TCPStore

TOKEN = "correct horse battery staple"
PING = b"\x0d\1\2\3\4"
CALLS = 32  # after which a connection moves
CALLS_TLS = 1024
OLDER: set[str] = set()  # sockets of stores that the process had before a test


@pytest.fixture(params=[False, True], ids=["epoll", "libuv"])
def uses_libuv(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "TLS", "STORE_UNIX"):
        monkeypatch.delenv(f"DISTLITE_{name}", raising=False)


@pytest.fixture(autouse=True)
def older() -> None:
    OLDER.clear()
    OLDER.update(unix_names(os.getpid()))


@pytest.fixture
def server(uses_libuv: bool) -> Iterator[TCPStore]:
    with master(use_libuv=uses_libuv) as store:
        yield store


def master(**arguments: Any) -> TCPStore:
    return TCPStore("127.0.0.1", 0, is_master=True, timeout=PATIENCE, **arguments)


def client(port: int, **arguments: Any) -> TCPStore:
    return TCPStore("127.0.0.1", port, timeout=PATIENCE, **arguments)


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
            assert store.get("key") == b"" if store.check(["key"]) else True
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


def test_a_stopped_move_lets_the_call_go_on(server, monkeypatch):
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
