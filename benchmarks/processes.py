# SPDX-License-Identifier: BSD-3-Clause
"""Processes that are measured, and the network that they are measured in."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import math
import os
import secrets
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from measure import REPOSITORY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

FOLDER = Path(__file__).resolve().parent
BUILD = REPOSITORY / "build" / "benchmarks"
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1
END_SECONDS = 30
# Ranks of a host.
RELAY_CLIENTS = 8
# What 20,000 descriptors allow: a client has one, a relay five and one for each client,
# a rank that leads its host about fifty.
LOAD_CLIENTS = 16384
PROCESS_RELAYS = 1024
PROCESS_STUBS = 256


class Process:
    """A child that answers lines with lines and ends at the end of its input."""

    def __init__(
        self, words: list[str], settings: Mapping[str, str] | None = None
    ) -> None:
        # torch's servers would log for every client that its name is not known.
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR", **(settings or {})},
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end_input()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def end_input(self) -> None:
        """Tells the process that no more lines come, at which it ends."""
        self._process.stdin.close()

    def tell(self, line: str) -> None:
        """Sends the process one line."""
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> str:
        """Returns the next line of the process."""
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended early")
        return line.strip()

    def resident_mib(self) -> float:
        """Memory of the whole process; of what it shares with others, its part."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("no Pss")

    def cpu_seconds(self) -> float:
        """Returns the processor time of all threads so far, which the kernel counts in
        nanoseconds here, not in ticks."""
        spent = 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            # It may have ended meanwhile.
            with contextlib.suppress(FileNotFoundError):
                spent += int((thread / "schedstat").read_text().split()[0])
        return spent * 1e-9


class Server(Process):
    """A server of one kind, such as 'torch libuv'."""

    def __init__(
        self, kind: str, python: str, settings: Mapping[str, str] | None = None
    ) -> None:
        words = [python, str(FOLDER / "store_server.py"), *kind.split()]
        super().__init__(words, settings)
        self.port = int(self.hear())


class Load:
    """Clients of a store in as many processes as their descriptors need; see
    store_load.c for the commands. `ours`: they speak distlite's protocol; `sockets`: to
    relays, which have so named sockets."""

    def __init__(
        self, port: int, clients: int, *, ours: bool = False, sockets: str | None = None
    ) -> None:
        how = [sockets, str(RELAY_CLIENTS)] if sockets else ["ours"] * ours
        self._sizes = parts(clients, LOAD_CLIENTS)
        self._processes = [
            Process(
                [str(build("store_load")), str(port), str(first), str(clients), *how]
            )
            for first in range(0, clients, LOAD_CLIENTS)
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        end_all(self._processes)

    def connect(self) -> float:
        """Seconds until all clients have joined."""
        return self._do([f"connect {size}" for size in self._sizes])

    def do(self, command: str) -> float:
        """Seconds that it took all processes."""
        return self._do([command] * len(self._processes))

    def _do(self, commands: Sequence[str]) -> float:
        start = time.perf_counter()
        for process, command in zip(self._processes, commands, strict=True):
            process.tell(command)
        for process, command in zip(self._processes, commands, strict=True):
            word, _, rest = process.hear().partition(" ")
            if word != "ok":
                raise RuntimeError(f"{command!r}: {rest}")
        return time.perf_counter() - start


@dataclass(frozen=True)
class Step:
    """What a step took all stub ranks together, and the one with the most."""

    seconds: float
    requests: int  # to the store
    most_requests: int
    bytes: int  # from it and to it
    most_bytes: int


class StubRanks:
    """Ranks without Python, many in a process, on pretended hosts of `per_host`; see
    stub_ranks.c for the commands."""

    def __init__(self, port: int, ranks: int, per_host: int = 1) -> None:
        self.port = port
        # Those of a host are in one process.
        most = PROCESS_STUBS // per_host * per_host
        self._processes = [
            Process(
                [
                    str(build_stubs()),
                    *map(str, (port, i * most, size, ranks, per_host)),
                ],
                {"DISTLITE_STORE_UNIX": "0", "GLOO_SOCKET_IFNAME": "lo"},
            )
            for i, size in enumerate(parts(ranks, most))
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        end_all(self._processes)

    def do(self, command: str) -> Step:
        """Has all of them do it."""
        start = time.perf_counter()
        found = [words[1:] for words in answers(self._processes, command)]
        seconds = time.perf_counter() - start
        requests, most_requests, sizes, most_sizes = (
            [int(each) for each in column] for column in zip(*found, strict=True)
        )
        return Step(
            *(seconds, sum(requests), max(most_requests)),
            *(sum(sizes), max(most_sizes)),
        )

    def resident_mib(self) -> float:
        """Memory of all processes."""
        return sum(process.resident_mib() for process in self._processes)


def answers(processes: Sequence[Process], command: str) -> list[list[str]]:
    """What processes answer to a command that they obey at the same time."""
    for process in processes:
        process.tell(command)
    found = [process.hear().partition(" ") for process in processes]
    for word, _, rest in found:
        if word != "ok":
            raise RuntimeError(f"{command!r}: {rest}")
    return [rest.split() for _, _, rest in found]


class Relays:
    """As many relays as the clients of a store need, many in a process."""

    def __init__(self, port: int, clients: int) -> None:
        self.sockets = f"distlite-{secrets.token_hex(8)}"
        words = [sys.executable, str(FOLDER / "store_relays.py"), str(port)]
        sizes = parts(math.ceil(clients / RELAY_CLIENTS), PROCESS_RELAYS)
        self._processes = [
            Process([*words, self.sockets, str(i * PROCESS_RELAYS), str(size)])
            for i, size in enumerate(sizes)
        ]
        for process in self._processes:
            process.hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        end_all(self._processes)

    def connect(self) -> float:
        """Starts them; seconds until all are connected to the server."""
        start = time.perf_counter()
        for process in self._processes:
            process.tell("start")
        for process in self._processes:
            process.hear()
        return time.perf_counter() - start


def parts(whole: int, most: int) -> list[int]:
    """The sizes of the parts of a whole, the last of which may be smaller."""
    return [min(most, whole - first) for first in range(0, whole, most)]


def end_all(processes: Sequence[Process]) -> None:
    """Lets them end side by side."""
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.push(process)
            process.end_input()


@functools.cache
def build_stubs() -> Path:
    """Builds the stub ranks with the core, as C tests are built."""
    sys.path.append(str(REPOSITORY / "tests"))
    from c_build import Builder

    return Builder().program(FOLDER / "stub_ranks.c")


@functools.cache
def build(name: str) -> Path:
    """Compile the program NAME.c of this folder if it is newer than the program."""
    return build_newer(f"{name}.c", name, "-O3")


def build_newer(source_name: str, name: str, *flags: str) -> Path:
    """Compile a source of this folder if it is newer than what it was compiled to."""
    source, program = FOLDER / source_name, BUILD / name
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(parents=True, exist_ok=True)
        # Others may compile or run it now.
        made = program.with_suffix(f".{os.getpid()}")
        compiler = os.environ.get("CC", "gcc").split()
        always = ["-std=c11", "-D_GNU_SOURCE", "-O2"]
        words = [*compiler, *always, *flags, str(source), "-o", str(made)]
        subprocess.run(words, check=True)
        made.replace(program)
    return program


def enter_own_network() -> bool:
    """Move this process and its children into a network that has loopback only.

    Name look-ups fail there at once.  torch's servers look up every client that they
    accept, and a resolver that is slow or silent would be measured instead of them.
    Needs root; False without.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        return False
    with socket.socket() as any_socket:
        request = struct.pack("16sh22x", b"lo", IFF_UP)
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, request)
    # With the usual 28,000 ports, finding a free one for the 16,000th client takes
    # longer than anything that a server does.
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("1024 65535")
    return True
