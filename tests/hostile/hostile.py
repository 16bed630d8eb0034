# SPDX-License-Identifier: BSD-3-Clause
"""What strangers may cost a store's server, and a job: `hostile.py [ATTACK ...]`.

Each attack is a program against a server in a process of its own, whose standard error
nobody reads. Meanwhile another client sends pings and looks how long the slowest answer
takes, and afterwards the server's memory, descriptors and processor time are compared
with those before. Other attacks are on a job of two ranks (job.py), by a process of
another user if this one is root's: there the slowest answer is the slowest round of
meeting, working and parting, and the costs are those of rank 0. One table shows it all,
with the bound of each; what is over its bound makes the exit status 1. The bounds are
far above what is measured on an idle machine, and far below what a server without
limits costs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from job import KINDS, Job, Sight, Stranger, rest
from store_bytes import (
    CHALLENGE,
    PROVE,
    VALIDATE,
    blob,
    hello,
    keys,
    prove,
    receive,
    request,
    unix_names,
)

from distlite import TCPStore

SET, ADD, WAIT, DELETE, MULTI_GET, MULTI_SET, PING, LIST = 1, 4, 6, 8, 10, 11, 13, 17
GET, CHECK, PUSH, POP = 3, 5, 14, 15
CHECKED = 0x80
MIB = 1 << 20
SERVERS = ("epoll", "libuv")
PATIENCE = 60.0

SERVER = """
import resource, sys
from distlite import TCPStore
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(int(sys.argv[2]), hard), hard))
uses_libuv = sys.argv[1] == "libuv"
token = sys.argv[3] or None  # of the tests, and no secret
settings = {"use_libuv": uses_libuv, "token": token, "tls": sys.argv[4]}
store = TCPStore("127.0.0.1", 0, is_master=True, **settings)
print(store.port, flush=True)
for line in sys.stdin:
    with open("/dev/null"):
        print("opened", flush=True)
"""


WELCOME = 1 + 16 + 1 + 4 + 42  # a server's reply to a hello


class Server:
    """A store's server, and what it costs."""

    def __init__(
        self,
        kind: str,
        descriptors: int,
        settings: dict[str, str],
        token: str = "",
        tls: str = "off",
    ) -> None:
        self.token = token.encode()
        self.tls = tls
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, kind, str(descriptors), token, tls],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **settings},
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())
        self.folder = Path(f"/proc/{self.process.pid}")

    def connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def join(self) -> socket.socket:
        client = self.connect()
        client.sendall(VALIDATE)
        if self.token:
            prove(client, self.token)
        return client

    def pinger(self) -> tuple[Callable[[], object], Callable[[], None]]:
        """What sends a request and returns after the answer, and what ends it."""
        if self.tls == "off":
            client = self.join()
            return lambda: ping(client), client.close
        store = join_by_tls(self.port, self.token, PATIENCE)
        return lambda: store.check(["key"]), store.close

    def memory(self) -> float:
        pages = int((self.folder / "statm").read_text().split()[1])
        return pages * resource.getpagesize() / MIB

    def descriptors(self) -> int:
        return len(list((self.folder / "fd").iterdir()))

    def processor(self) -> float:
        fields = (self.folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def can_open(self) -> bool:
        """Whether the program in which it runs can open a file."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("open\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "opened\n"

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Victim:
    """Sends 200 pings a second; `slowest` is the longest wait, in seconds.

    The server's time for them counts as the attack's, so there are few of them.
    """

    def __init__(self, server: Server) -> None:
        self.slowest = 0.0
        self._ping_once, self._leave = server.pinger()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ping, daemon=True)
        self._thread.start()

    def _ping(self) -> None:
        while not self._is_over.wait(0.005):
            began = time.monotonic()
            try:
                self._ping_once()
            except (OSError, RuntimeError):
                self.slowest = float("inf")
                return
            self.slowest = max(self.slowest, time.monotonic() - began)

    def close(self) -> None:
        self._is_over.set()
        self._thread.join()
        self._leave()


def join_by_tls(port: int, token: bytes, patience: float) -> TCPStore:
    settings = {"timeout": patience, "token": token, "tls": "psk"}
    return TCPStore("127.0.0.1", port, wait_for_workers=False, **settings)


def hello_of(token: bytes) -> bytes:
    """The first message of a client with TLS that knows this token."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def call() -> None:
            with contextlib.suppress(RuntimeError):
                join_by_tls(listener.getsockname()[1], token, 1.0)

        caller = threading.Thread(target=call)
        caller.start()
        with listener.accept()[0] as connection:
            hello = connection.recv(65536)
    caller.join()
    return hello


def ping(client: socket.socket) -> None:
    """Returns when all that was asked before is done."""
    client.sendall(request(PING, b"\1\2\3\4"))
    assert receive(client, 4) == b"\1\2\3\4"


def feed(client: socket.socket, data: bytes) -> None:
    """Sends until all is sent, or the server ends the conversation."""
    with contextlib.suppress(OSError):
        client.sendall(data)


# Of a server, or of a job.
Attack = Callable[[Any, contextlib.ExitStack], None]


@dataclass(frozen=True)
class Bound:
    """What an attack may cost at most, and how the server is set up for it."""

    slowest: float = 3.0  # seconds
    memory: float = 64.0  # MiB
    descriptors: int = 30
    processor: float = 3.0  # seconds
    limit: int = 4096  # descriptors the server's process may have
    settings: tuple[tuple[str, str], ...] = ()
    token: str = ""
    tls: str = "off"
    on_job: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS if self.on_job else SERVERS


ATTACKS: dict[str, tuple[Attack, Bound]] = {}


def attack(bound: Bound) -> Callable[[Attack], Attack]:
    def enter(function: Attack) -> Attack:
        ATTACKS[function.__name__] = (function, bound)
        return function

    return enter


def joined(server: Server, stack: contextlib.ExitStack) -> socket.socket:
    return stack.enter_context(server.join())


@attack(Bound())
def add_on_blanks(server: Server, stack: contextlib.ExitStack) -> None:
    """6,000 requests to add to a value of 8 MiB of blanks."""
    client = joined(server, stack)
    client.sendall(request(SET, blob(b"k"), blob(b" " * (8 * MIB))))
    one = request(ADD | CHECKED, blob(b"k"), struct.pack("<q", 1))
    reader = threading.Thread(target=discard, args=(client,), daemon=True)
    reader.start()
    client.sendall(one * 6000)
    client.shutdown(socket.SHUT_WR)
    reader.join()


def discard(client: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while client.recv(MIB):
            pass


@attack(Bound())
def one_byte_requests(server: Server, stack: contextlib.ExitStack) -> None:
    """A million requests of one byte in a row."""
    client = joined(server, stack)
    reader = threading.Thread(target=discard, args=(client,), daemon=True)
    reader.start()
    client.sendall(request(7) * 1_000_000)
    client.shutdown(socket.SHUT_WR)
    reader.join()


@attack(Bound(memory=96.0))
def wait_for_one_key_often(server: Server, stack: contextlib.ExitStack) -> None:
    """20 clients wait for one key 131,071 times each; another sets and deletes it.

    Their waits take 60 MiB, and requests that come at the same time 1 MiB each.
    """
    many = request(WAIT, keys([b"k"] * 131071 + [b"never"]))
    for _ in range(20):
        joined(server, stack).sendall(many)
    client = joined(server, stack)
    for _ in range(100):
        client.sendall(
            request(SET, blob(b"k"), blob(b"")) + request(DELETE, blob(b"k"))
        )
        receive(client, 8)


@attack(Bound(memory=96.0))
def many_keys_at_once(server: Server, stack: contextlib.ExitStack) -> None:
    """131,072 keys set, got and waited for in one request each."""
    client = joined(server, stack)
    names = [b"%d" % number for number in range(131072)]
    pairs = b"".join(blob(name) + blob(name) for name in names)
    client.sendall(request(MULTI_SET, struct.pack("<Q", len(names)), pairs))
    ping(client)
    client.sendall(request(MULTI_GET, keys(names)))
    receive(client, sum(8 + len(name) for name in names))
    client.sendall(request(WAIT, keys(names)))
    assert receive(client, 1) == b"\0"


@attack(Bound(memory=96.0, descriptors=110))
def listings_that_nobody_reads(server: Server, stack: contextlib.ExitStack) -> None:
    """100 clients send 6 bytes each: they list 100,000 keys, and read nothing."""
    client = joined(server, stack)
    names = [b"%d" % number for number in range(100_000)]
    pairs = b"".join(blob(name) + blob(b"") for name in names)
    client.sendall(request(MULTI_SET, struct.pack("<Q", len(names)), pairs))
    ping(client)
    for _ in range(100):
        joined(server, stack).sendall(request(LIST))
    ping(client)


@attack(Bound(memory=8.0, descriptors=110))
def announcements(server: Server, stack: contextlib.ExitStack) -> None:
    """100 clients announce a value of 8 MiB each and send none of it."""
    for _ in range(100):
        joined(server, stack).sendall(
            request(SET, blob(b"k"), struct.pack("<Q", 8 * MIB))
        )


@attack(
    Bound(
        memory=128.0,
        descriptors=60,
        settings=(("DISTLITE_STORE_BYTES", str(128 * MIB)),),
    )
)
def requests_half_sent(server: Server, stack: contextlib.ExitStack) -> None:
    """50 clients send 7 of 8 MiB each, to a server that may hold 64 MiB of such."""
    head = request(SET, blob(b"k"), struct.pack("<Q", 8 * MIB))
    for _ in range(50):
        feed(joined(server, stack), head + bytes(7 * MIB))


@attack(Bound(memory=128.0, settings=(("DISTLITE_STORE_BYTES", str(64 * MIB)),)))
def keys_without_end(server: Server, stack: contextlib.ExitStack) -> None:
    """40 values of 8 MiB, in a store that may hold 64 MiB."""
    for number in range(40):
        feed(
            joined(server, stack),
            request(SET, blob(b"%d" % number), blob(bytes(8 * MIB))),
        )


@attack(Bound())
def a_log_that_nobody_reads(server: Server, stack: contextlib.ExitStack) -> None:
    """2,000 clients of a line of the log each."""
    for _ in range(2000):
        with server.join() as client:
            client.sendall(request(0x55, b"\x1b]0;" + b"x" * 12))
            discard(client)


@attack(Bound(descriptors=300, limit=256))
def descriptors(server: Server, stack: contextlib.ExitStack) -> None:
    """300 connections that say nothing, to a process that may have 256 descriptors."""
    for _ in range(300):
        stack.enter_context(server.connect())
    if not server.can_open():
        raise AssertionError("the program cannot open a file")


@attack(Bound(descriptors=20))
def strangers_that_say_nothing(server: Server, stack: contextlib.ExitStack) -> None:
    """500 connections that never say that they are store clients."""
    strangers = [stack.enter_context(server.connect()) for _ in range(500)]
    for stranger in strangers:
        discard(stranger)


OTHER_USER = 65533


@attack(Bound(memory=8.0))
def other_users_at_the_unix_socket(server: Server, stack: contextlib.ExitStack) -> None:
    """20,000 connections to the Unix socket, of another user if this one is root."""
    (name,) = unix_names(server.process.pid)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setresuid(OTHER_USER, OTHER_USER, OTHER_USER)
            for _ in range(20_000):
                with (
                    socket.socket(socket.AF_UNIX) as stranger,
                    contextlib.suppress(BrokenPipeError, ConnectionResetError),
                ):
                    stranger.connect(f"\0{name}")
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    wait_for_descriptors(server)


@attack(
    Bound(
        memory=16.0,
        descriptors=300,
        limit=256,
    ),
)
def silence_at_the_unix_socket(server: Server, stack: contextlib.ExitStack) -> None:
    """500 connections there that say nothing, to a process of 256 descriptors."""
    (name,) = unix_names(server.process.pid)
    for _ in range(500):
        stranger = stack.enter_context(socket.socket(socket.AF_UNIX))
        stranger.settimeout(PATIENCE)
        stranger.connect(f"\0{name}")
    if not server.can_open():
        raise AssertionError("the program cannot open a file")
    with TCPStore("127.0.0.1", server.port, timeout=PATIENCE) as honest:
        for number in range(1, 101):
            assert honest.add("n", 1) == number


@attack(Bound(memory=96.0, descriptors=80))
def readers_without_progress(server: Server, stack: contextlib.ExitStack) -> None:
    """50 clients ask for 64 MiB each and read nothing."""
    client = joined(server, stack)
    client.sendall(request(SET, blob(b"k"), blob(bytes(8 * MIB))))
    ping(client)
    for _ in range(50):
        joined(server, stack).sendall(request(GET, blob(b"k")) * 8)
    rest(1)


@attack(Bound(memory=8.0, token="known to the victim"))
def proofs_that_are_wrong(server: Server, stack: contextlib.ExitStack) -> None:
    """5,000 strangers in turn ask for a proof of the token, and make theirs up."""
    for _ in range(5000):
        with server.connect() as client:
            client.sendall(VALIDATE + request(CHALLENGE, bytes(32)))
            client.sendall(request(PROVE, os.urandom(32)))
            if receive(client, 34)[33] == 0:
                raise AssertionError("a wrong proof was taken")


@attack(
    Bound(
        memory=8.0,
        descriptors=20,
        token="known to the victim",
    )
)
def strangers_that_prove_nothing(server: Server, stack: contextlib.ExitStack) -> None:
    """500 connections that ask for a proof or are refused, and stay."""
    strangers = [stack.enter_context(server.connect()) for _ in range(500)]
    for number, stranger in enumerate(strangers):
        stranger.sendall(VALIDATE)
        feed(stranger, request(CHALLENGE if number % 2 else PING, bytes(32)))
    wait_for_descriptors(server)


@attack(Bound(memory=16.0, token="known to the victim", tls="psk"))
def tls_with_wrong_keys(server: Server, stack: contextlib.ExitStack) -> None:
    """2,000 strangers in turn begin TLS with the key of another token."""
    hello = hello_of(b"unknown to the server")
    for _ in range(2000):
        with server.connect() as client:
            client.sendall(hello)
            if receive(client, 1) != b"\x15":
                raise AssertionError("a wrong key was not answered by an alert")


@attack(
    Bound(
        memory=48.0,
        descriptors=20,
        token="known to the victim",
        tls="psk",
    )
)
def half_handshakes_of_tls(server: Server, stack: contextlib.ExitStack) -> None:
    """500 connections that repeat what a right client once said, and stay."""
    hello = hello_of(server.token)
    for number in range(500):
        stranger = stack.enter_context(server.connect())
        feed(stranger, hello if number % 2 else hello[:-1])
    wait_for_descriptors(server)


@attack(
    Bound(
        memory=32.0,
        token="known to the victim",
        tls="psk",
    )
)
def garbage_in_handshakes(server: Server, stack: contextlib.ExitStack) -> None:
    """300 connections that announce a long hello, and send up to 1 MiB of it."""
    record = b"\x16\x03\x01\x40\x00"
    first = record + b"\x01\x01\xff\x00" + bytes(0x4000 - 4)
    for number in range(300):
        stranger = stack.enter_context(server.connect())
        feed(stranger, first)
        rest = record + os.urandom(0x4000) if number % 2 else os.urandom(0x4005)
        feed(stranger, rest * 63)
    wait_for_descriptors(server)


def wait_for_descriptors(server: Server) -> None:
    """Until the server has closed what strangers have opened."""
    deadline = time.monotonic() + PATIENCE
    while server.descriptors() > 30 and time.monotonic() < deadline:
        time.sleep(0.05)


@attack(
    Bound(
        memory=16.0,
        descriptors=60,
        settings=(("DISTLITE_STORE_BYTES", str(8 * MIB)),),
    )
)
def clients_that_come_and_go(server: Server, stack: contextlib.ExitStack) -> None:
    """20,000 clients say hello, set a key and vanish; 1 MiB of them is remembered."""
    for number in range(20_000):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            # Reset, so that no port of this host is in use for a minute.
            linger = struct.pack("ii", 1, 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.settimeout(PATIENCE)
            client.sendall(
                VALIDATE
                + hello(struct.pack("<QQ", number, 0))
                + request(CHECKED | SET, blob(b"k"), blob(b"v"))
            )
            assert receive(client, WELCOME + 1)[-1] == 0


@attack(
    Bound(
        memory=128.0,
        descriptors=60,
        settings=(("DISTLITE_STORE_BYTES", str(512 * MIB)),),
    )
)
def items_that_nobody_has_read(server: Server, stack: contextlib.ExitStack) -> None:
    """40 clients pop 8 MiB each and say no more; 64 MiB are kept for them."""
    for number in range(40):
        client = joined(server, stack)
        client.sendall(hello(struct.pack("<QQ", number, 1)))
        receive(client, WELCOME)
        feed(client, request(CHECKED | PUSH, blob(b"q"), blob(bytes(8 * MIB))))
        receive(client, 1)
        client.sendall(request(CHECKED | POP, blob(b"q")))
        receive(client, 1 + 8 + 8 + 8 * MIB)


@attack(Bound(memory=8.0, descriptors=60))
def slots_that_are_others(server: Server, stack: contextlib.ExitStack) -> None:
    """10,000 guesses at the slot of another client, and numbers that do not fit it."""
    victim = joined(server, stack)
    mine = os.urandom(16)
    victim.sendall(hello(mine))
    assert receive(victim, WELCOME)[17] == 0
    add = request(CHECKED | ADD, blob(b"n"), struct.pack("<q", 1))
    victim.sendall(add)
    assert receive(victim, 9) == b"\0" + struct.pack("<q", 1)
    client = joined(server, stack)
    for number in range(10_000):
        client.sendall(hello(struct.pack("<QQ", number, 2), 1 + number))
        assert receive(client, WELCOME)[17] == 0
    client.sendall(hello(b"o" * 16))
    assert receive(client, WELCOME)[17] == 0
    for number in (3, 5, (1 << 64) - 1):
        other = joined(server, stack)
        other.sendall(hello(b"o" * 16, number))
        with contextlib.suppress(ConnectionResetError):
            receive(other, WELCOME)
            raise AssertionError("a number out of sequence was taken")
    victim.sendall(add)
    assert receive(victim, 9) == b"\0" + struct.pack("<q", 2)


@attack(Bound(memory=16.0, descriptors=30))
def a_stopped_client(server: Server, stack: contextlib.ExitStack) -> None:
    """A process is stopped while it has asked for 256 MiB and half sent requests."""
    client = joined(server, stack)
    client.sendall(request(SET, blob(b"k"), blob(bytes(8 * MIB))))
    ping(client)
    begun, telling = os.pipe()
    stopped = os.fork()
    if stopped == 0:
        try:
            clients = [server.join() for _ in range(4)]
            for each in clients:
                each.sendall(request(GET, blob(b"k")) * 8 + request(SET, blob(b"x")))
            os.write(telling, b"!")
            os.kill(os.getpid(), signal.SIGSTOP)
        finally:
            os._exit(1)
    os.close(telling)
    try:
        os.read(begun, 1)
        os.waitpid(stopped, os.WUNTRACED)
        for _ in range(200):
            ping(client)
    finally:
        os.close(begun)
        os.kill(stopped, signal.SIGKILL)
        os.waitpid(stopped, 0)


@attack(Bound(descriptors=300))
def connections_without_end(server: Server, stack: contextlib.ExitStack) -> None:
    """Three processes connect and leave, as fast as they can."""
    for _ in range(3):
        stack.enter_context(Stranger(lambda: server.connect().close()))
    rest(3)


ON_JOB = Bound(slowest=10.0, memory=16.0, descriptors=40, on_job=True)


@attack(ON_JOB)
def floods_of_local_sockets(job: Job, stack: contextlib.ExitStack) -> None:
    """Two strangers send and connect to every Unix socket of the job that they see."""
    sight = stack.enter_context(Sight(job))
    for _ in range(2):
        stack.enter_context(Stranger(lambda: flood_local_sockets(sight.names())))
    job.hamper(4)


def flood_local_sockets(names: list[bytes]) -> None:
    end = os.open("/dev/null", os.O_RDONLY)
    guess = os.urandom(16)
    for name in names:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            for _ in range(100):
                with contextlib.suppress(OSError):
                    stranger.connect(name)
                    socket.send_fds(stranger, [guess], [end] * 8)
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            for _ in range(100):
                with socket.socket(socket.AF_UNIX, kind) as stranger:
                    stranger.setblocking(False)
                    with contextlib.suppress(OSError):
                        stranger.connect(name)
    os.close(end)


@attack(ON_JOB)
def names_of_sockets_taken(job: Job, stack: contextlib.ExitStack) -> None:
    """A stranger takes the names of the job's Unix sockets when they are free."""
    sight = stack.enter_context(Sight(job))
    seen: dict[bytes, socket.socket | None] = {}

    def take() -> None:
        for name in [*sight.names(), *seen]:
            if seen.get(name) is None and len(seen) < 500:
                seen[name] = None
                stranger = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                try:
                    stranger.bind(name)
                    seen[name] = stranger
                except OSError:
                    stranger.close()

    stack.enter_context(Stranger(take))
    job.hamper(4)


@attack(Bound(slowest=10.0, memory=16.0, descriptors=150, on_job=True))
def strangers_at_the_ranks_ports(job: Job, stack: contextlib.ExitStack) -> None:
    """A stranger connects to every port of the ranks, and says nothing, or nonsense."""
    sight = stack.enter_context(Sight(job))

    def call() -> None:
        held = []
        for port in sight.ports():
            for number in range(20):
                with contextlib.suppress(OSError):
                    held.append(socket.create_connection(("127.0.0.1", port), 0.2))
                    held[-1].settimeout(0.2)
                    held[-1].sendall(os.urandom(200) if number % 2 else b"")
        for each in held:
            each.close()

    stack.enter_context(Stranger(call))
    rest(4)


@attack(
    Bound(
        slowest=10.0,
        memory=32.0,
        descriptors=60,
        token="known to the job",
        on_job=True,
    )
)
def writers_without_the_token(job: Job, stack: contextlib.ExitStack) -> None:
    """A stranger says to the job's store that rank 1 failed, and writes at length."""

    def write() -> None:
        with socket.create_connection(("127.0.0.1", job.port), timeout=5) as client:
            feed(client, VALIDATE)
            for number in range(100):
                for key in (b"fault", b"default_pg/0/fault", b"cpu/1"):
                    name = b"/%d/%s" % (number, key)
                    feed(client, request(SET, blob(name), blob(b"rank 1: \x1b]0;")))
            discard(client)

    stack.enter_context(Stranger(write))
    rest(4)


@attack(
    Bound(
        slowest=10.0,
        memory=32.0,
        descriptors=60,
        token="known to the job",
        on_job=True,
    )
)
def clients_of_another_job(job: Job, stack: contextlib.ExitStack) -> None:
    """Clients with another token, and ones that know none, come again and again."""

    def come() -> None:
        for token in (b"of another job", b""):
            with (
                socket.create_connection(("127.0.0.1", job.port), timeout=5) as client,
                contextlib.suppress(OSError),
            ):
                client.sendall(VALIDATE)
                if token:
                    prove(client, token)
                    raise AssertionError("another token was taken")
                feed(client, request(GET, blob(b"/k")))
                discard(client)

    stack.enter_context(Stranger(come))
    rest(4)


@dataclass(frozen=True)
class Cost:
    slowest: float
    memory: float
    descriptors: int
    processor: float
    failure: str = ""

    def excess(self, bound: Bound) -> list[str]:
        names = ("slowest", "memory", "descriptors", "processor")
        over = [name for name in names if getattr(self, name) > getattr(bound, name)]
        return over + ([self.failure] if self.failure else [])


def measure_on_job(function: Attack, kind: str, bound: Bound) -> Cost:
    """Runs one attack against a new job."""
    job = Job(kind, dict(bound.settings), bound.token)
    try:
        memory, files, processor = job.memory(), job.descriptors(), job.processor()
        idle_since = time.monotonic()
        rest(1)
        idle = (job.processor() - processor) / (time.monotonic() - idle_since)
        with contextlib.ExitStack() as stack:
            began, processor = time.monotonic(), job.processor()
            function(job, stack)
            # Beyond what the job takes for itself in that time.
            own = idle * (time.monotonic() - began)
            used = max(0.0, job.processor() - processor - own)
            cost = (job.memory() - memory, job.descriptors() - files)
            job.finish()
        return Cost(job.slowest, cost[0], cost[1], used, job.failure)
    finally:
        job.close()


def measure(name: str, kind: str) -> Cost:
    """Runs one attack against a new server, or a new job."""
    function, bound = ATTACKS[name]
    if bound.on_job:
        return measure_on_job(function, kind, bound)
    settings = dict(bound.settings)
    server = Server(kind, bound.limit, settings, bound.token, bound.tls)
    try:
        victim = Victim(server)
        memory, files, processor = (
            server.memory(),
            server.descriptors(),
            server.processor(),
        )
        failure = ""
        with contextlib.ExitStack() as stack:
            try:
                function(server, stack)
            except (AssertionError, OSError) as error:
                failure = f"{type(error).__name__}: {error}"
            # Still while the attackers are connected.
            used = server.processor() - processor
            cost = (server.memory() - memory, server.descriptors() - files)
        victim.close()
        return Cost(victim.slowest, cost[0], cost[1], used, failure)
    finally:
        server.close()


def rows(names: list[str], kinds: list[str]) -> Iterator[tuple[str, str, Cost]]:
    """Of each attack against each kind of what it attacks; no `kinds` are all."""
    for name in names:
        for kind in ATTACKS[name][1].kinds:
            if not kinds or kind in kinds:
                yield name, kind, measure(name, kind)


HEAD = (
    f"{'attack':28} {'on':9} {'slowest answer':>15} {'memory':>15} "
    f"{'descriptors':>12} {'processor':>12}"
)


def line(name: str, kind: str, cost: Cost) -> str:
    """A row of the table: what was measured, and after the stroke the bound."""
    bound = ATTACKS[name][1]
    excess = cost.excess(bound)
    return (
        f"{name:28} {kind:9} {cost.slowest * 1000:7.1f}/{bound.slowest * 1000:.0f} ms "
        f"{cost.memory:7.1f}/{bound.memory:3.0f} MiB "
        f"{cost.descriptors:8}/{bound.descriptors:3} "
        f"{cost.processor:7.2f}/{bound.processor:2.0f} s"
        + (f"  OVER: {', '.join(excess)}" if excess else "")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=(*SERVERS, *KINDS), action="append")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=", ".join(ATTACKS))
    options = parser.parse_args()
    unknown = set(options.attacks) - set(ATTACKS)
    if unknown:
        parser.error(f"no such attack: {', '.join(sorted(unknown))}")
    is_bounded = True
    print(HEAD)
    for name, kind, cost in rows(
        options.attacks or list(ATTACKS), options.server or []
    ):
        is_bounded &= not cost.excess(ATTACKS[name][1])
        print(line(name, kind, cost), flush=True)
    return 0 if is_bounded else 1


if __name__ == "__main__":
    sys.exit(main())
