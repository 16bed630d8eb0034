# SPDX-License-Identifier: BSD-3-Clause
"""Stores that use a relay of their host: store_relay(), and a relay that is killed or
stopped in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import distlite as dist

VARIABLE = "DISTLITE_STORE_RELAY"

# A relay in a process of its own, until its standard input ends.
RELAY = """
import sys, time
import distlite as dist
relay = dist.store_relay("127.0.0.1", int(sys.argv[1]), name=sys.argv[2] or None)
until = time.monotonic() + 20
while not relay.is_connected and time.monotonic() < until:
    time.sleep(0.005)
print(relay.address, flush=True)
sys.stdin.read()
"""


def wait_until(condition, limit: float = 20) -> None:
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


@contextmanager
def relay_process(port: int, name: str = "") -> Iterator[tuple[subprocess.Popen, str]]:
    with subprocess.Popen(
        [sys.executable, "-c", RELAY, str(port), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@pytest.fixture
def server() -> Iterator[dist.TCPStore]:
    yield dist.TCPStore("127.0.0.1", 0, is_master=True, timeout=20)


def client_of(server: dist.TCPStore) -> dist.TCPStore:
    return dist.TCPStore("127.0.0.1", server.port, timeout=20)


def test_stores_use_the_relay_in_the_environment(server, monkeypatch):
    with dist.store_relay("127.0.0.1", server.port) as relay:
        assert isinstance(relay, dist.StoreRelay)
        assert relay.address == f"{relay.name}@127.0.0.1:{server.port}"
        monkeypatch.setenv(VARIABLE, relay.address)
        stores = [client_of(server) for _ in range(3)]
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
    monkeypatch.setenv(VARIABLE, f"127.0.0.1:{server.port}")
    with pytest.raises(ValueError, match="NAME@HOST:PORT"):
        client_of(server)


def test_a_job_with_a_token(monkeypatch):
    token = "a token of sixteen or more bytes"
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, token=token, timeout=20)
    with dist.store_relay("127.0.0.1", server.port, token=token) as relay:
        wait_until(lambda: relay.is_connected)
        monkeypatch.setenv(VARIABLE, relay.address)
        store = dist.TCPStore("127.0.0.1", server.port, token=token, timeout=20)
        store.set("a", "1")
        assert server.stats()["relayed_clients"] == 1


def test_a_relay_that_is_killed_again_and_again(server, monkeypatch):
    """Eight threads add while the relay is killed: each addition counts once."""
    count = 300
    with relay_process(server.port) as (process, address):
        name = address.partition("@")[0]
        monkeypatch.setenv(VARIABLE, address)
        stores = [client_of(server) for _ in range(8)]
        assert server.stats()["relayed_clients"] == 8
        failures: list[BaseException] = []

        def add(store: dist.TCPStore) -> None:
            try:
                for _ in range(count):
                    store.add("n", 1)
                    time.sleep(0.001)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=add, args=(store,)) for store in stores]
        for thread in threads:
            thread.start()
        wait_until(lambda: server.add("n", 0) > 100)
        process.kill()
        process.wait()
        with relay_process(server.port, name) as (second, again):
            assert again == address
            wait_until(lambda: server.add("n", 0) > 1000 or not threads[0].is_alive())
            second.kill()
        for thread in threads:
            thread.join(30)
        assert not failures
        assert server.add("n", 0) == 8 * count


def test_a_relay_that_is_stopped(server, monkeypatch, caplog):
    """It is named, and the server is used without it."""
    with relay_process(server.port) as (process, address):
        monkeypatch.setenv(VARIABLE, address)
        store = client_of(server)
        waiting = client_of(server)
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(waiting.get("key")))
        thread.start()
        wait_until(lambda: server.stats()["waiters"] == 1)
        os.kill(process.pid, signal.SIGSTOP)
        assert store.add("n", 1) == 1
        server.set("key", "value")
        thread.join(20)
        assert got == [b"value"]
        with pytest.raises(dist.DistStoreError, match="wait timeout after 100ms"):
            store.wait(["none"], 0.1)
        os.kill(process.pid, signal.SIGCONT)
        assert store.add("n", 1) == 2
    text = caplog.text
    assert f"relay @{address.partition('@')[0]} (process {process.pid})" in text
    assert "does not answer" in text and "; connecting to the server directly" in text
