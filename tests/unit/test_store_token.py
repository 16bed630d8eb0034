# SPDX-License-Identifier: BSD-3-Clause
"""TCPStore with the job's token: who is let in, and what is said to the others."""

from __future__ import annotations

import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from store_kinds import PATIENCE

from distlite import DistNetworkError, PrefixStore, TCPStore

TOKEN = "correct horse battery staple"
OTHER = "incorrect horse"
VALIDATE = b"\0" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d\1\2\3\4"
ASKS = "this store asks for the job's token"
WRONG = "the token is not the one of this store"
NEEDLESS = "this store has no token"


@pytest.fixture(params=[False, True], ids=["epoll", "libuv"])
def uses_libuv(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture(autouse=True)
def no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISTLITE_TOKEN", raising=False)
    monkeypatch.delenv("DISTLITE_TOKEN_FILE", raising=False)


def master(
    token: str | None, port: int = 0, fd: int | None = None, **arguments
) -> TCPStore:
    return TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        timeout=PATIENCE,
        master_listen_fd=fd,
        token=token,
        **arguments,
    )


def client(port: int, token: str | bytes | None, **arguments) -> TCPStore:
    return TCPStore(
        "127.0.0.1", port, **{"timeout": PATIENCE, "token": token, **arguments}
    )


def test_who_knows_the_token_is_served(uses_libuv: bool):
    with master(TOKEN, use_libuv=uses_libuv, world_size=1) as store:
        store.set("key", "value")
        with client(store.port, TOKEN.encode(), world_size=1) as other:
            assert other.get("key") == b"value"
            with other.clone() as third:
                assert third.get("key") == b"value"
            # Waits take connections of their own, each of which proves anew.
            waits = [
                threading.Thread(target=PrefixStore("p", s).get, args=("late",))
                for s in (store, other, other)
            ]
            for wait in waits:
                wait.start()
            other.set("p/late", "now")
            for wait in waits:
                wait.join(PATIENCE.total_seconds())
                assert not wait.is_alive()


def test_a_pickle_has_a_token_that_was_passed(monkeypatch):
    with master(TOKEN) as store:
        text = pickle.dumps(store)
        with pickle.loads(text) as other, pickle.loads(pickle.dumps(other)) as third:
            third.set("key", "value")
            assert store.get("key") == b"value"
    monkeypatch.setenv("DISTLITE_TOKEN", TOKEN)
    with master(None) as store:
        text = pickle.dumps(store)
        assert TOKEN.encode() not in text
        with pickle.loads(text):
            pass
        monkeypatch.delenv("DISTLITE_TOKEN")
        with pytest.raises(DistNetworkError, match=ASKS):
            pickle.loads(text)


@pytest.mark.parametrize(
    ("servers", "clients", "text"),
    [(TOKEN, OTHER, WRONG), (TOKEN, None, ASKS), (None, TOKEN, NEEDLESS)],
    ids=["wrong", "none", "needless"],
)
def test_who_does_not_is_told_so_at_once(uses_libuv, servers, clients, text, caplog):
    with master(servers, use_libuv=uses_libuv) as store:
        began = time.monotonic()
        with pytest.raises(DistNetworkError, match=text) as raised:
            client(store.port, clients)
        assert time.monotonic() - began < PATIENCE.total_seconds() / 2
        assert f"127.0.0.1:{store.port}" in str(raised.value)
        store.set("key", "value")  # nobody else notices
        assert store.get("key") == b"value"
    told = str(raised.value) + caplog.text
    assert TOKEN not in told and OTHER not in told


def test_a_client_that_returns_to_another_jobs_server_is_told(uses_libuv: bool):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        again = listener.dup()
        with master(TOKEN, port, listener.detach()):
            other = client(port, TOKEN)
            other.set("key", "value")
    with (
        other,
        master(OTHER, port, again.detach(), use_libuv=uses_libuv),
        pytest.raises(DistNetworkError, match=WRONG),
    ):
        other.get("key")


@contextmanager
def fake_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """Answers each connection in turn, as `answer` does, and closes it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                connection.settimeout(PATIENCE.total_seconds())
                with connection, suppress(OSError):
                    answer(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            break
        data += piece
    return data


CHALLENGE_SIZE = len(VALIDATE) + 33


def lie(connection: socket.socket) -> None:
    """Has no token, believes every proof, and makes one up."""
    receive(connection, CHALLENGE_SIZE)
    connection.sendall(b"\0" + os.urandom(32))
    proof = receive(connection, 33)
    connection.sendall(b"\0" + proof[1:] + PING)


def close_as_torch(connection: socket.socket) -> None:
    receive(connection, CHALLENGE_SIZE)


def refuse_as_older(connection: socket.socket) -> None:
    receive(connection, CHALLENGE_SIZE)
    text = b"unknown request 0xc0"
    connection.sendall(b"\4" + struct.pack("<Q", len(text)) + text)


def refuse_at_length(connection: socket.socket) -> None:
    receive(connection, CHALLENGE_SIZE)
    connection.sendall(b"\4" + struct.pack("<Q", 1 << 40))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lie, "does not know the job's token, although it says so"),
        (close_as_torch, "closed the connection when asked to prove"),
        (refuse_as_older, "asked for a proof of the job's token: unknown request 0xc0"),
        (refuse_at_length, "a refusal of 1099511627776 bytes"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_server_that_does_not_know_it_is_not_believed(answer, text):
    with fake_server(answer) as port, pytest.raises(DistNetworkError, match=text):
        client(port, TOKEN)


def test_a_server_that_says_nothing_is_named_in_time():
    text = "does not answer when asked to prove that it knows the job's token"
    with (
        fake_server(lambda connection: receive(connection, 1 << 16) and None) as port,
        pytest.raises(DistNetworkError, match=text),
    ):
        client(port, TOKEN, timeout=0.3)


def test_refusals_do_not_fill_the_log(uses_libuv: bool, caplog):
    with master(TOKEN, use_libuv=uses_libuv) as store:
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(DistNetworkError, match=WRONG):
                client(store.port, OTHER)
        seconds = time.monotonic() - began
    assert 1 <= len(caplog.messages) <= 3 + 2 * seconds


@pytest.mark.parametrize("by_file", [False, True], ids=["variable", "file"])
def test_the_environment_has_it(monkeypatch, tmp_path: Path, by_file: bool):
    if by_file:
        path = tmp_path / "token"
        path.touch(0o600)
        path.write_text(TOKEN + "\n")
        monkeypatch.setenv("DISTLITE_TOKEN_FILE", str(path))
    else:
        monkeypatch.setenv("DISTLITE_TOKEN", TOKEN)
    with master(None) as store, client(store.port, None) as other:
        other.set("key", "value")
        assert store.get("key") == b"value"
        monkeypatch.delenv("DISTLITE_TOKEN_FILE" if by_file else "DISTLITE_TOKEN")
        with other.clone() as third, client(store.port, TOKEN) as fourth:
            assert third.get("key") == fourth.get("key") == b"value"
        with pytest.raises(DistNetworkError, match=ASKS):
            client(store.port, None)
        # The argument takes precedence, and the environment is not even looked at.
        monkeypatch.setenv("DISTLITE_TOKEN", "")
        with client(store.port, TOKEN):
            pass


@pytest.mark.parametrize(
    ("token", "environment", "error", "text"),
    [
        ("", {}, ValueError, "the job's token is empty"),
        (b"", {}, ValueError, "the job's token is empty"),
        (7, {}, TypeError, "token"),
        (None, {"DISTLITE_TOKEN_FILE": "/nowhere/x"}, ValueError, "cannot be read: No"),
    ],
)
def test_what_is_no_token(monkeypatch, token, environment, error, text):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=text) as raised:
        master(token)
    assert TOKEN not in str(raised.value)


def test_without_openssl_a_token_is_an_error():
    script = "from distlite import TCPStore\nTCPStore('127.0.0.1', 0, token='secret')"
    environment = {**os.environ, "DISTLITE_SSL_LIBRARY": "/nowhere/libssl.so"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE.total_seconds(),
    )
    assert "DistStoreError: OpenSSL's libssl" in done.stderr
    assert "DISTLITE_SSL_LIBRARY=/nowhere/libssl.so" in done.stderr
