# SPDX-License-Identifier: BSD-3-Clause
"""The bytes that clients send to a store's server; docs/wire.md has the tables."""

from __future__ import annotations

import hmac
import os
import re
import socket
import struct
from pathlib import Path

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
PING = b"\x0d\1\2\3\4"
CHECK, CHALLENGE, PROVE = 5, 0xC0, 0xC1


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def request(op: int, *fields: bytes) -> bytes:
    return bytes([op]) + b"".join(fields)


def hello(slot: bytes, sequence: int = 1) -> bytes:
    """Returns the hello of a connection; docs/wire.md describes its purpose."""
    key = b"distlite/3" + slot + struct.pack("<Q", sequence)
    return request(CHECK, keys([key]))


def keys(names: list[bytes]) -> bytes:
    return struct.pack("<Q", len(names)) + b"".join(map(blob, names))


def unix_names(pid: int) -> set[str]:
    """Abstract names at which a process listens for streams; everybody can see them."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(link)))
        except OSError:
            continue
    rows = [row.split() for row in Path("/proc/net/unix").read_text().splitlines()[1:]]
    listening = [row for row in rows if len(row) == 8 and row[3] == "00010000"]
    return {row[7].removeprefix("@") for row in listening if row[6] in inodes}


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = client.recv(size - len(data))
        if not piece:
            raise ConnectionResetError("the server has closed the connection")
        data += piece
    return data


def prove(client: socket.socket, token: bytes) -> None:
    """Proves that it knows the token; docs/wire.md describes how."""
    nonce = os.urandom(32)
    client.sendall(request(CHALLENGE, nonce))
    nonces = nonce + receive(client, 33)[1:]
    label = b"distlite store 1 client".ljust(32, b"\0")
    client.sendall(request(PROVE, hmac.digest(token, label + nonces, "sha256")))
    if receive(client, 33)[0] != 0:
        raise PermissionError("the server knows another token")
