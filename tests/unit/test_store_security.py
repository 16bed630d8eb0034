# SPDX-License-Identifier: BSD-3-Clause
"""TCPStore with the job's token and with TLS: who is let in, what a man in the middle
gets, and what is said to the others."""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from certificates import Authority, Identity, openssl, openssl_is_missing
from relays import Change, Cutter, Relay, flip, truncate
from store_bytes import PING, VALIDATE
from store_kinds import PATIENCE, client, master

from distlite import DistNetworkError, DistStoreError, PrefixStore, TCPStore

TOKEN = "correct horse battery staple"
OTHER = "incorrect horse"
TLS = {"token": TOKEN, "tls": "psk"}
ASKS = "this store asks for the job's token"
WRONG = "the token is not the one of this store"
NEEDLESS = "this store has no token"
TLS_ONLY = "this store's server speaks TLS only"
NEEDS_OPENSSL = pytest.mark.skipif(
    openssl_is_missing(), reason="makes certificates with the command openssl"
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "TOKEN_FILE", "TLS"):
        monkeypatch.delenv(f"DISTLITE_{name}", raising=False)


def test_who_knows_the_token_is_served(uses_libuv: bool):
    with master(token=TOKEN, use_libuv=uses_libuv, world_size=1) as store:
        store.set("key", "value")
        with client(store.port, token=TOKEN.encode(), world_size=1) as other:
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
    with master(token=TOKEN) as store:
        text = pickle.dumps(store)
        with pickle.loads(text) as other, pickle.loads(pickle.dumps(other)) as third:
            third.set("key", "value")
            assert store.get("key") == b"value"
    monkeypatch.setenv("DISTLITE_TOKEN", TOKEN)
    with master() as store:
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
def test_who_does_not_is_told_so_at_once(uses_libuv, servers, clients, text, capfd):
    with master(token=servers, use_libuv=uses_libuv) as store:
        began = time.monotonic()
        with pytest.raises(DistNetworkError, match=text) as raised:
            client(store.port, token=clients)
        assert time.monotonic() - began < PATIENCE.total_seconds() / 2
        assert f"127.0.0.1:{store.port}" in str(raised.value)
        store.set("key", "value")  # nobody else notices
        assert store.get("key") == b"value"
    told = str(raised.value) + capfd.readouterr().err
    assert TOKEN not in told and OTHER not in told


def test_a_client_that_returns_to_another_jobs_server_is_told(uses_libuv: bool):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        again = listener.dup()
        with master(port, token=TOKEN, master_listen_fd=listener.detach()):
            other = client(port, token=TOKEN)
            other.set("key", "value")
    with (
        other,
        master(
            port,
            token=OTHER,
            master_listen_fd=again.detach(),
            use_libuv=uses_libuv,
        ),
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
        client(port, token=TOKEN)


def test_a_server_that_says_nothing_is_named_in_time():
    text = "does not answer when asked to prove that it knows the job's token"
    with (
        fake_server(lambda connection: receive(connection, 1 << 16) and None) as port,
        pytest.raises(DistNetworkError, match=text),
    ):
        client(port, token=TOKEN, timeout=0.3)


def test_refusals_do_not_fill_the_log(uses_libuv: bool, capfd):
    with master(token=TOKEN, use_libuv=uses_libuv) as store:
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(DistNetworkError, match=WRONG):
                client(store.port, token=OTHER)
        seconds = time.monotonic() - began
    assert 1 <= len(capfd.readouterr().err.splitlines()) <= 3 + 2 * seconds


@pytest.mark.parametrize("by_file", [False, True], ids=["variable", "file"])
def test_the_environment_has_it(monkeypatch, tmp_path: Path, by_file: bool):
    if by_file:
        path = tmp_path / "token"
        path.touch(0o600)
        path.write_text(TOKEN + "\n")
        monkeypatch.setenv("DISTLITE_TOKEN_FILE", str(path))
    else:
        monkeypatch.setenv("DISTLITE_TOKEN", TOKEN)
    with master() as store, client(store.port) as other:
        other.set("key", "value")
        assert store.get("key") == b"value"
        monkeypatch.delenv("DISTLITE_TOKEN_FILE" if by_file else "DISTLITE_TOKEN")
        with other.clone() as third, client(store.port, token=TOKEN) as fourth:
            assert third.get("key") == fourth.get("key") == b"value"
        with pytest.raises(DistNetworkError, match=ASKS):
            client(store.port)
        # The argument takes precedence, and the environment is not even looked at.
        monkeypatch.setenv("DISTLITE_TOKEN", "")
        with client(store.port, token=TOKEN):
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
        master(token=token)
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


# TLS with a key from the token.


def receive_all(stranger: socket.socket) -> bytes:
    """What comes before the end, however that is told."""
    told = b""
    with suppress(ConnectionError):
        while part := stranger.recv(4096):
            told += part
    return told


def test_a_pickle_speaks_tls(uses_libuv: bool):
    with (
        master(use_libuv=uses_libuv, **TLS) as store,
        client(store.port, **TLS) as c,
        pickle.loads(pickle.dumps(c)) as again,
    ):
        again.set("key", "value")
        assert store.get("key") == b"value"


def test_the_environment_decides(monkeypatch):
    monkeypatch.setenv("DISTLITE_TLS", "psk")
    monkeypatch.setenv("DISTLITE_TOKEN", TOKEN)
    with master() as store, client(store.port) as c:
        c.set("key", "value")
        with pytest.raises(DistNetworkError, match=TLS_ONLY):
            client(store.port, tls="off")
    with master(tls="off") as store, client(store.port, tls="off"):
        pass
    monkeypatch.setenv("DISTLITE_TLS", "on")
    with pytest.raises(
        ValueError, match="DISTLITE_TLS is 'on'; it can be 'off', 'psk'"
    ):
        master()


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="takes its key from the job's token"):
        master(tls="psk")
    with pytest.raises(ValueError, match="tls is 'yes'"):
        master(token=TOKEN, tls="yes")
    with pytest.raises(TypeError, match="tls"):
        TCPStore("127.0.0.1", 0, is_master=True, tls=True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        given = listener.dup()
        with pytest.raises(ValueError, match="tls is 'yes'"):
            master(token=TOKEN, tls="yes", master_listen_fd=given.detach())


@pytest.mark.parametrize(
    ("tls", "token", "text"),
    [
        ("psk", OTHER, "refuses this process's key .*same token"),
        ("off", None, TLS_ONLY + ".*DISTLITE_TLS=psk"),
        ("off", TOKEN, TLS_ONLY + ".*DISTLITE_TLS=psk"),
    ],
    ids=["wrong token", "no TLS", "no TLS but the token"],
)
def test_who_does_not_belong_is_told_so(uses_libuv, tls, token, text, capfd):
    with master(use_libuv=uses_libuv, **TLS) as store:
        with pytest.raises(DistNetworkError, match=text) as raised:
            client(store.port, tls=tls, token=token)
        assert f"127.0.0.1:{store.port}" in str(raised.value)
        store.set("key", "value")  # nobody else notices
        assert store.get("key") == b"value"
    told = str(raised.value) + capfd.readouterr().err
    assert TOKEN not in told and OTHER not in told


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_server_without_tls_is_named(uses_libuv: bool, token: str | None):
    with (
        master(tls="off", token=token, use_libuv=uses_libuv) as store,
        pytest.raises(DistNetworkError, match="asked to speak TLS.*DISTLITE_TLS=psk"),
    ):
        client(store.port, **TLS)


def test_torchs_client_is_refused_in_plain(uses_libuv: bool):
    with (
        master(use_libuv=uses_libuv, **TLS) as store,
        socket.create_connection(("127.0.0.1", store.port)) as stranger,
    ):
        stranger.settimeout(PATIENCE.total_seconds())
        stranger.sendall(VALIDATE + PING)
        told = receive_all(stranger)
    assert told[:4] == b"\xff\xff\xff\xff" and TLS_ONLY.encode() in told


@pytest.mark.parametrize(
    "bytes_sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x16", b"\x16\x03\x01\xff\xff" + b"x" * 70000],
    ids=["http", "half", "record too long"],
)
def test_strangers_get_nothing(uses_libuv: bool, bytes_sent: bytes):
    with (
        master(use_libuv=uses_libuv, **TLS) as store,
        socket.create_connection(("127.0.0.1", store.port)) as stranger,
    ):
        stranger.settimeout(PATIENCE.total_seconds())
        with suppress(ConnectionError):
            stranger.sendall(bytes_sent)
            stranger.shutdown(socket.SHUT_WR)
        assert len(receive_all(stranger)) <= 7  # an alert at most
        assert store.add("n", 1) == 1


# The man in the middle.


def test_a_relay_reads_nothing(uses_libuv: bool):
    secrets = ["a key nobody may see", "a value nobody may see"]
    with (
        master(use_libuv=uses_libuv, **TLS) as store,
        Relay(store.port) as relay,
        client(relay.port, **TLS) as c,
    ):
        c.set(*secrets)
        assert c.get(secrets[0]) == secrets[1].encode()
    assert len(relay.seen) > 500
    for secret in (*secrets, TOKEN):
        assert secret.encode() not in relay.seen


def converse(port: int) -> None:
    """Either all is right, or an error is raised."""
    with client(port, timeout=1.0, **TLS) as c:
        c.set("key", "value")
        assert c.get("key") == b"value"
        assert c.add("n", 2) % 2 == 0


def interfere(server: int, change: Change) -> str:
    with Relay(server, change) as relay:
        try:
            converse(relay.port)
        except (DistNetworkError, DistStoreError) as error:
            return str(error)
    return ""


# Offsets in the client's hello, the server's, the messages behind, and in requests;
# tests/c/test_tls.c changes every byte of a stream.
PLACES = [0, 3, 9, 76, 130, 200, 260, 330, 420]


@pytest.mark.parametrize("is_up", [True, False], ids=["client's", "server's"])
def test_changed_bytes_are_never_taken_for_data(uses_libuv: bool, is_up: bool):
    with master(use_libuv=uses_libuv, **TLS) as store:
        told = [interfere(store.port, flip(place, is_up)) for place in PLACES]
        converse(store.port)
        assert any(told)
        assert set(store.list_keys()) <= {"key", "n"}


@pytest.mark.parametrize("is_up", [True, False], ids=["client's", "server's"])
def test_a_cut_connection_is_an_error_or_repeated(uses_libuv: bool, is_up: bool):
    with master(use_libuv=uses_libuv, **TLS) as store:
        for place in PLACES:
            interfere(store.port, truncate(place, is_up))
        converse(store.port)


# Larger than a request or a reply of these calls in its record of TLS.
RECORD = 100


@pytest.mark.parametrize(
    "step", [7, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"]
)
def test_calls_take_effect_once_wherever_their_connection_is_cut(
    uses_libuv: bool, step: int
):
    """As tests/c/test_lost_replies.c shows it of all calls without TLS."""
    cutter = Cutter()
    cuts = [(is_up, left) for is_up in (True, False) for left in range(1, RECORD, step)]
    with (
        master(use_libuv=uses_libuv, **TLS) as store,
        Relay(store.port, cutter) as relay,
        client(relay.port, **TLS) as c,
    ):
        for number, (is_up, left) in enumerate(cuts, 1):
            cutter.is_up, cutter.left = is_up, left
            assert c.add("n", 1) == number
            c.append("text", "x")
            c.queue_push("queue", str(number))
            assert c.queue_pop("queue") == str(number).encode()
            assert cutter.left is None
        assert len(store.get("text")) == len(cuts)
        assert store.queue_len("queue") == 0


def test_a_relay_cannot_make_a_store_of_its_own():
    """Who does not know the token cannot pretend to be the server either."""
    with (
        master(token=OTHER, tls="psk") as false,
        Relay(false.port) as relay,
        pytest.raises(DistNetworkError, match="refuses this process's key"),
    ):
        client(relay.port, **TLS)


# Certificates.


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def rank(authority: Authority) -> Identity:
    return authority.sign("rank")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Authority(tmp_path_factory.mktemp("foreign"), "foreign").sign("stranger")


def become(monkeypatch: pytest.MonkeyPatch, identity: Identity, **changes) -> None:
    for name, value in identity.environment(**changes).items():
        monkeypatch.setenv(name, value)


@NEEDS_OPENSSL
@pytest.mark.parametrize("token", [None, TOKEN])
def test_certificates_of_one_authority_trust_each_other(
    monkeypatch, uses_libuv, rank, token
):
    become(monkeypatch, rank)
    with (
        master(token=token, use_libuv=uses_libuv) as store,
        client(store.port, token=token) as c,
    ):
        c.set("key", "value")
        assert store.get("key") == b"value"
        with pytest.raises(DistNetworkError, match=TLS_ONLY + ".*DISTLITE_TLS=cert"):
            client(store.port, tls="off", token=token)
        with pytest.raises(DistNetworkError, match="TLS with the store's server"):
            client(store.port, **TLS)


@NEEDS_OPENSSL
def test_a_folder_of_authorities(monkeypatch, tmp_path, rank):
    (tmp_path / "ca.pem").write_bytes(rank.authority.read_bytes())
    openssl(tmp_path, "rehash", str(tmp_path))
    become(monkeypatch, rank, CA_FILE="", CA_PATH=tmp_path)
    with master() as store, client(store.port):
        pass


@NEEDS_OPENSSL
def test_a_foreign_certificate_is_refused(monkeypatch, uses_libuv, rank, foreign):
    become(monkeypatch, rank)
    with master(use_libuv=uses_libuv) as store:
        # The client trusts the job's authority, and shows a stranger's certificate.
        become(monkeypatch, foreign, CA_FILE=rank.authority)
        with pytest.raises(
            DistNetworkError, match="refuses this process's certificate"
        ):
            client(store.port)
        # The client does not trust the job's authority.
        become(monkeypatch, foreign)
        with pytest.raises(
            DistNetworkError, match="certificate of the server is refused .*CN=job"
        ):
            client(store.port)
        become(monkeypatch, rank)
        with client(store.port) as c:
            c.set("key", "value")


@NEEDS_OPENSSL
def test_certificates_are_refused_in_words(monkeypatch, authority, rank, foreign):
    old = authority.sign("old", days=-1)
    become(monkeypatch, old)
    with pytest.raises(
        ValueError, match=r"CERT=.*old.pem: the certificate has expired"
    ):
        master()
    become(monkeypatch, rank, PKEY=foreign.key)
    with pytest.raises(
        ValueError, match=r"PKEY=.*stranger.key .*belongs to the certificate"
    ):
        master()
    become(monkeypatch, rank, PKEY=rank.certificate)
    with pytest.raises(ValueError, match=r"PKEY=.*is not a private key in PEM"):
        master()
    become(monkeypatch, rank, CA_FILE=rank.key)
    with pytest.raises(ValueError, match=r"CA_FILE=.*has no certificates"):
        master()
    become(monkeypatch, rank, CA_FILE="/nowhere/ca.pem")
    with pytest.raises(ValueError, match="CA_FILE=/nowhere/ca.pem cannot be read"):
        master()


@NEEDS_OPENSSL
def test_a_key_with_a_password_asks_nobody(monkeypatch, tmp_path, rank):
    locked = tmp_path / "locked.key"
    files = ["-in", str(rank.key), "-out", str(locked)]
    openssl(tmp_path, "ec", "-aes128", "-passout", "pass:word", *files)
    become(monkeypatch, rank, PKEY=locked)
    with pytest.raises(ValueError, match="without a password"):
        master()


@contextmanager
def served_by(identity: Identity, port: list[int]) -> Iterator[None]:
    """A TLS server of Python's that shows this certificate to one client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE.total_seconds())
        port.append(listener.getsockname()[1])

        def serve() -> None:
            with suppress(OSError), listener.accept()[0] as plain:
                plain.settimeout(PATIENCE.total_seconds())
                context.wrap_socket(plain, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join(PATIENCE.total_seconds())
        assert not thread.is_alive()


@NEEDS_OPENSSL
def test_a_server_with_an_expired_certificate(monkeypatch, authority, rank):
    become(monkeypatch, rank)
    port: list[int] = []
    with (
        served_by(authority.sign("older", days=-1), port),
        pytest.raises(DistNetworkError, match="CN=older: certificate has expired"),
    ):
        client(port[0])
    # Nor does a client with a token take any certificate for a proof of that.
    port.clear()
    with (
        served_by(rank, port),
        pytest.raises(DistNetworkError, match="in place of the job's token"),
    ):
        client(port[0], **TLS)


def call_as(context: ssl.SSLContext, port: int) -> None:
    """Sends a request as far as the server lets it."""
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain) as secured,
    ):
        secured.settimeout(PATIENCE.total_seconds())
        secured.sendall(VALIDATE + PING)
        assert secured.recv(4) == PING[1:]


@NEEDS_OPENSSL
def test_clients_without_a_valid_certificate(
    monkeypatch, uses_libuv, authority: Authority, rank, foreign
):
    become(monkeypatch, rank)
    with master(use_libuv=uses_libuv) as store:
        context = ssl.create_default_context(cafile=str(rank.authority))
        context.check_hostname = False
        with pytest.raises((ssl.SSLError, OSError)):
            call_as(context, store.port)
        for identity in (authority.sign("oldest", days=-1), foreign):
            context.load_cert_chain(identity.certificate, identity.key)
            with pytest.raises((ssl.SSLError, OSError)):
                call_as(context, store.port)
        context.load_cert_chain(rank.certificate, rank.key)
        call_as(context, store.port)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, OSError)):
            call_as(context, store.port)
