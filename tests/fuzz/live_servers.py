# SPDX-License-Identifier: BSD-3-Clause
"""Hostile bytes for whole servers: `live_servers.py --seconds 60 --seed 1`.

Each round starts a store's server in a process of its own, of one kind and with one
setting, and sends it what clients say, changed here and there, in pieces of all sizes,
over many connections that end at any moment. With a token or TLS, some clients know the
secret and go on behind it. Meanwhile an honest client must get right answers in time,
and afterwards the server must end with status 0 and without a word of a sanitizer:
`make fuzz` runs it with the extension that has two of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parent))

from certificates import Authority, Identity, openssl_is_missing  # noqa: E402
from store_bytes import (  # noqa: E402
    CHALLENGE,
    PROVE,
    VALIDATE,
    blob,
    hello,
    prove,
    request,
    unix_names,
)

from distlite import TCPStore  # noqa: E402

KINDS = ("epoll", "libuv")
WAYS = ("plain", "token", "tls", "journal")
TOKEN = "of the tests, and no secret"
# Of honest requests, and of what strangers wait for: sanitizers are slow.
PATIENCE = 60.0
AT_ONCE = 12
CLIENTS = 100  # of one round
HONEST_EVERY = 40
LARGEST = 256 << 10

SERVER = """
import sys
from distlite import TCPStore
kind, token, tls, journal = sys.argv[1:]
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=kind == "libuv",
                 token=token or None, tls=tls, journal=journal or None)
print(store.port, flush=True)
sys.stdin.read()
store.close()
"""

LEAVE = b"\xc2"
NAMES = [
    b"/a",
    b"/b",
    b"/counter",
    b"/queue",
    b"/queue/2",
    b"",
    b"/" + b"k" * 8000,
]
SIZES = [0, 1, 5, 64, 1000, 70000]
# Below, at and above the limits of docs/wire.md, and of 32 and 64 bits.
NUMBERS = [0, 1, 8192, 8193, 131072, 131073, 8 << 20, 1 << 31, 1 << 63, (1 << 64) - 1]


def some_request(chance: random.Random) -> bytes:
    """One that is right, of any kind; docs/wire.md has the table."""

    def key() -> bytes:
        return blob(chance.choice(NAMES))

    def value() -> bytes:
        return blob(chance.choice([b"7", b"x" * chance.choice(SIZES)]))

    def number() -> bytes:
        return struct.pack("<q", chance.choice([-1, 0, 1, 2, 1 << 62]))

    def several(*fields: object) -> bytes:
        count = chance.choice([0, 1, 2, 3, 70])
        return struct.pack("<Q", count) + b"".join(
            field() for _ in range(count) for field in fields if callable(field)
        )

    fields = {
        1: lambda: key() + value(),
        2: lambda: key() + value() + value(),
        3: key,
        4: lambda: key() + number(),
        5: lambda: several(key),
        6: lambda: several(key),
        7: lambda: b"",
        8: key,
        9: lambda: key() + value(),
        10: lambda: several(key),
        11: lambda: several(key, value),
        12: lambda: b"",
        13: lambda: b"ping",
        14: lambda: key() + value(),
        15: key,
        16: key,
        17: lambda: b"",
        18: lambda: key() + number(),
        19: lambda: b"",
    }
    op = chance.choice(list(fields))
    is_checked = op >= 19 or chance.random() < 0.5
    return bytes([op | 0x80 * is_checked]) + fields[op]()


def some_hello(chance: random.Random) -> bytes:
    """Few slots, so that some clients meet in one."""
    slot = bytes([chance.randrange(20)]) * 16
    return hello(slot, chance.choice([1, 1, 1, 2, 9]))


def changed(data: bytearray, chance: random.Random) -> bytearray:
    """`data` with one thing changed."""
    at = chance.randrange(len(data) + 1)
    kind = chance.randrange(6)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data[at : at + 8] = struct.pack("<Q", chance.choice(NUMBERS))
    elif kind == 2:
        del data[at : at + chance.randrange(1, 16)]
    elif kind == 3:
        data[at:at] = chance.randbytes(chance.randrange(1, 16))
    elif kind == 4:
        data[at:at] = some_request(chance)
    else:
        data[at:at] = data[at : at + chance.randrange(1, 64)] * chance.randrange(1, 50)
    return data[:LARGEST]


def conversation(chance: random.Random) -> bytes:
    """What a client says after it was let in."""
    data = bytearray(some_hello(chance) if chance.random() < 0.5 else b"")
    for _ in range(chance.randrange(1, 30)):
        data += some_request(chance)
    for _ in range(chance.choice([0, 0, 1, 1, 2, 5])):
        data = changed(data, chance)
    return bytes(data) + LEAVE * (chance.random() < 0.2)


class Server:
    """`secret` is what clients of a server with TLS know it by."""

    def __init__(self, kind: str, way: str, folder: Path, identity: Identity | None):
        self.way = way
        self.folder = folder
        self.settings = identity.environment() if way == "tls" and identity else {}
        self.identity = identity
        self.tls = "cert" if way == "tls" else "off"
        token = TOKEN if way == "token" else ""
        journal = str(folder / f"journal-{kind}") if way == "journal" else ""
        self.said = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, kind, token, self.tls, journal],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env={**os.environ, **self.settings},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the server did not start: {self.words()}")
        self.port = int(line)
        (self.unix_name,) = unix_names(self.process.pid)

    def words(self) -> str:
        self.said.seek(0)
        return self.said.read().decode(errors="replace")

    def honest(self) -> TCPStore:
        for name, value in self.settings.items():
            os.environ[name] = value
        token = TOKEN if self.way == "token" else None
        try:
            return TCPStore(
                "127.0.0.1", self.port, timeout=PATIENCE, token=token, tls=self.tls
            )
        finally:
            for name in self.settings:
                del os.environ[name]

    def connect(self, chance: random.Random) -> socket.socket:
        """By TCP or the Unix socket.  Of one in four the server does not hear what it
        wants to hear first."""
        client = self._call(chance.random() < 0.5)
        if chance.random() < 0.25:
            first = [VALIDATE, request(CHALLENGE, chance.randbytes(32))]
            first += [request(PROVE, chance.randbytes(32)), b"\x16\x03\x01", b""]
            client.sendall(b"".join(chance.sample(first, 2)))
            return client
        try:
            if self.way == "tls":
                client = self._with_tls(client)
            client.sendall(VALIDATE)
            if self.way == "token":
                prove(client, TOKEN.encode())
        except BaseException:
            client.close()
            raise
        return client

    def _call(self, by_tcp: bool) -> socket.socket:
        if by_tcp:
            where = ("127.0.0.1", self.port)
            client = socket.create_connection(where, timeout=PATIENCE)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return client
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE)
        client.connect(f"\0{self.unix_name}")
        return client

    def _with_tls(self, client: socket.socket) -> socket.socket:
        assert self.identity is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(self.identity.authority)
        context.load_cert_chain(self.identity.certificate, self.identity.key)
        return context.wrap_socket(client)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(PATIENCE)
        words = self.words()
        assert status == 0, f"exit status {status}\n{words}"
        assert "Sanitizer" not in words and "runtime error" not in words, words

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.said):
            assert file is not None
            file.close()


class Client:
    """Says its conversation, a piece at a step."""

    def __init__(self, server: Server, chance: random.Random):
        self.chance = chance
        self.socket = server.connect(chance)
        self.socket.setblocking(False)
        self.left = conversation(chance)
        self.reads = chance.random() < 0.8

    def step(self) -> bool:
        """False when it has left."""
        chance = self.chance
        try:
            with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
                size = chance.choice([1, 7, 9, 100, len(self.left)])
                self.left = self.left[self.socket.send(self.left[:size]) :]
            with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError):
                while self.reads and self.socket.recv(1 << 16):
                    pass
        except OSError:
            self.close()
            return False
        if chance.random() < (0.02 if self.left else 0.3):
            if chance.random() < 0.3:  # a reset, in place of an end
                option = struct.pack("ii", 1, 0)
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
            self.close()
            return False
        return True

    def close(self) -> None:
        self.socket.close()


def check(store: TCPStore, chance: random.Random) -> None:
    """One key of its own, which no stranger guesses."""
    name = chance.randbytes(16).hex()
    value = chance.randbytes(chance.choice([1, 100, 100000]))
    began = time.monotonic()
    store.set(name, value)
    assert store.get(name) == value
    assert store.add(name + "/n", 5) == 5
    assert store.delete_key(name) and store.delete_key(name + "/n")
    assert not store.check([name])
    assert time.monotonic() - began < PATIENCE


def one_round(
    seed: int, kind: str, way: str, folder: Path, who: Identity | None
) -> int:
    """Returns how many clients there were."""
    chance = random.Random(seed)
    server = Server(kind, way, folder, who)
    clients: list[Client] = []
    try:
        store = server.honest()
        made = steps = 0
        while made < CLIENTS or clients:
            if made < CLIENTS and len(clients) < AT_ONCE:
                made += 1
                with contextlib.suppress(OSError):
                    clients.append(Client(server, chance))
                continue
            client = chance.choice(clients)
            if not client.step():
                clients.remove(client)
            steps += 1
            if steps % HONEST_EVERY == 0:
                check(store, chance)
        check(store, chance)
        store.close()
        server.close()
        return made
    finally:
        for client in clients:
            client.close()
        server.kill()


def fuzz(seconds: float, seed: int, folder: Path) -> int:
    """At least one round for each kind and way; returns how many clients there were."""
    who = None if openssl_is_missing() else Authority(folder).sign("server")
    pairs = [(k, w) for w in WAYS for k in KINDS if who is not None or w != "tls"]
    began = time.monotonic()
    clients = rounds = 0
    while rounds < len(pairs) or time.monotonic() - began < seconds:
        kind, way = pairs[rounds % len(pairs)]
        try:
            clients += one_round(seed + rounds, kind, way, folder, who)
        except BaseException:
            print(f"failed: --round {kind} {way} --seed {seed + rounds}", flush=True)
            raise
        rounds += 1
    print(f"{rounds} rounds, {clients} clients")
    return clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--round", nargs=2, metavar=("KIND", "WAY"), help="only this")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if options.round:
            who = Authority(folder).sign("server")
            kind, way = options.round
            one_round(options.seed, kind, way, folder, who)
        else:
            fuzz(options.seconds, options.seed, folder)


if __name__ == "__main__":
    main()
