# SPDX-License-Identifier: BSD-3-Clause
"""The cost of a store's journal: calls of `set` per second without one and in each of
its modes, and the time that a server with 100,000 keys takes to start again.

All servers run at the same time, and their clients take turns, so that other load of
the machine affects them alike. The file is in the current folder, whose disk determines
the result of "always".

    python benchmarks/store_journal.py [--quick]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from distlite import TCPStore

MODES = ("none", "never", "interval", "always")
# Clients, and bytes of a value.
LOADS = ((1, 100), (4, 100), (1, 65536))
SPAN = 0.25
KEYS = 100_000

SERVER = """
import sys
from distlite import TCPStore
kind, mode, path = sys.argv[1:]
options = {} if mode == "none" else {"journal": path, "journal_sync": mode}
store = TCPStore("127.0.0.1", 0, is_master=True, use_libuv=kind == "libuv", **options)
print(store.port, flush=True)
sys.stdin.read()
"""
CLIENT = """
import sys, time
from distlite import TCPStore
port, size, number = map(int, sys.argv[1:])
store = TCPStore("127.0.0.1", port)
value = b"x" * size
for line in sys.stdin:
    end = time.monotonic() + float(line)
    count = 0
    while time.monotonic() < end:
        for i in range(20):
            store.set(f"{number}/{i}", value)
        count += 20
    print(count, flush=True)
"""


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    """Starts a process that answers lines with lines."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def rates(kind: str, clients: int, size: int, rounds: int, folder: str) -> list[float]:
    """Calls a second in each of MODES, the median of all rounds."""
    servers = [
        start(SERVER, kind, mode, f"{folder}/{kind}-{clients}-{size}-{mode}")
        for mode in MODES
    ]
    callers = [
        [start(CLIENT, port, size, number) for number in range(clients)]
        for port in map(hear, servers)
    ]
    found: list[list[float]] = [[] for _ in MODES]
    for turn in range(rounds + 1):
        order = range(len(MODES)) if turn % 2 else reversed(range(len(MODES)))
        for mode in order:
            for caller in callers[mode]:
                ask(caller, str(SPAN))
            rate = sum(map(hear, callers[mode])) / SPAN
            if turn > 0:  # the first connects
                found[mode].append(rate)
    for group in (*callers, servers):
        for process in group:
            process.communicate()
    return [statistics.median(values) for values in found]


def restart(kind: str, folder: str) -> tuple[float, float]:
    """Returns the milliseconds that the constructor takes, without and with the
    keys."""
    options = {"is_master": True, "use_libuv": kind == "libuv"}
    path = f"{folder}/{kind}-restart"
    with TCPStore("127.0.0.1", 0, **options, journal=path) as store:
        for first in range(0, KEYS, 1000):
            names = [f"key/{number}" for number in range(first, first + 1000)]
            store.multi_set(names, [b"x" * 100] * 1000)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(5):
        for took, journal in zip(times, (None, path), strict=True):
            began = time.perf_counter()
            with TCPStore("127.0.0.1", 0, **options, journal=journal) as store:
                took.append(1000 * (time.perf_counter() - began))
                assert journal is None or store.check([f"key/{KEYS - 1}"])
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> None:
    """Prints one table of both servers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 4 if parser.parse_args().quick else 20
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        print(f"{'set, calls a second':34}", *(f"{mode:>10}" for mode in MODES))
        for kind in ("libuv", "epoll"):
            for clients, size in LOADS:
                row = rates(kind, clients, size, rounds, folder)
                name = f"{kind}, {clients} client{'s' * (clients > 1)}, {size} B"
                print(f"{name:34}", *(f"{rate:10.0f}" for rate in row), flush=True)
        for kind in ("libuv", "epoll"):
            plain, kept = restart(kind, folder)
            print(f"{kind}: starts in {plain:.1f} ms, with {KEYS} keys {kept:.0f} ms")


if __name__ == "__main__":
    main()
