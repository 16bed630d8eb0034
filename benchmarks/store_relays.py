# SPDX-License-Identifier: BSD-3-Clause
"""Relays of a store, as of many hosts: `store_relays.py PORT SOCKET FIRST COUNT`.

The names of their Unix sockets are SOCKET and the relay's number, from FIRST, in 16
digits.  Prints a line, starts them when it reads one, prints another when all have
connected, and serves until the end of its standard input.
"""

from __future__ import annotations

import sys
import time

import distlite


def main(port: int, socket: str, first: int, count: int) -> None:
    """Starts them all before any has connected, as hosts do."""
    names = [f"{socket}{number:016x}" for number in range(first, first + count)]
    print("ready", flush=True)
    sys.stdin.readline()
    relays = [distlite.store_relay("127.0.0.1", port, name=name) for name in names]
    while not all(relay.is_connected for relay in relays):
        time.sleep(0.01)
    print("connected", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    port, socket, first, count = sys.argv[1:]
    main(int(port), socket, int(first), int(count))
