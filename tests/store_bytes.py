# SPDX-License-Identifier: BSD-3-Clause
"""What clients say to a store's server, in bytes: docs/wire.md has the tables."""

from __future__ import annotations

import hmac
import os
import socket
import struct

VALIDATE = b"\x00" + struct.pack("<I", 0x3C85F7CE)
CHECK, CHALLENGE, PROVE = 5, 0xC0, 0xC1


def blob(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data


def request(op: int, *fields: bytes) -> bytes:
    return bytes([op]) + b"".join(fields)


def hello(slot: bytes, sequence: int = 1) -> bytes:
    """docs/wire.md says what it is good for."""
    key = b"distlite/2" + slot + struct.pack("<Q", sequence)
    return request(CHECK, keys([key]))


def keys(names: list[bytes]) -> bytes:
    return struct.pack("<Q", len(names)) + b"".join(map(blob, names))


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
