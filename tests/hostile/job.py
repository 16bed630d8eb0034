# SPDX-License-Identifier: BSD-3-Clause
"""A running job for hostile.py to attack: two ranks that meet, and meet again."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from own_folder import own_folder

MIB = 1 << 20
STRANGER = 65534  # a user who is nobody in particular

# In each round the ranks meet, work and part.  Rank 0 says how long the slowest took.
RANK = """
import json, sys, threading, time
import numpy as np
import distlite as dist

rank, port, token = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] or None
store = dist.TCPStore("127.0.0.1", port, 2, rank == 0, wait_for_workers=False,
                      token=token, timeout=30)
if rank == 0:
    print(store.port, flush=True)
is_over = threading.Event()
if rank == 0:
    threading.Thread(
        target=lambda: (sys.stdin.readline(), is_over.set()), daemon=True
    ).start()
slowest, rounds, keeps_on = 0.0, 0, True
while keeps_on:
    began = time.monotonic()
    dist.init_process_group(
        "gloo", store=dist.PrefixStore(str(rounds), store), rank=rank, world_size=2,
        timeout=30,
    )
    for _ in range(20):
        data = np.ones(1000)
        dist.all_reduce(data)
        assert data[0] == 2
    over = np.array([float(is_over.is_set() and rank == 0)])
    dist.all_reduce(over)
    keeps_on = over[0] == 0
    dist.destroy_process_group()
    if rounds > 0:
        slowest = max(slowest, time.monotonic() - began)
    if rank == 0 and rounds == 1:
        print("runs", flush=True)
    rounds += 1
if rank == 0:
    print(json.dumps([slowest, rounds]), flush=True)
    sys.stdin.readline()
"""

KINDS = ("one host", "two hosts")
FALLBACK = "cannot reach each other's Unix sockets"


class Job:
    """Two ranks, and what rank 0, which serves the store, costs."""

    def __init__(self, kind: str, settings: dict[str, str], token: str = "") -> None:
        self.slowest = float("inf")
        self.failure = ""
        self._kind, self._settings, self._token = kind, settings, token
        self._ranks: list[subprocess.Popen[str]] = []
        self._log = os.fdopen(os.memfd_create("log"), "w+")
        first = self._start(0, 0)
        assert first.stdout is not None
        self.port = int(first.stdout.readline())
        self._start(1, self.port)
        assert first.stdout.readline() == "runs\n"
        self.pids = [rank.pid for rank in self._ranks]
        self._folder = Path(f"/proc/{first.pid}")

    def _start(self, rank: int, port: int) -> subprocess.Popen[str]:
        hint = f"host{rank}" if self._kind == "two hosts" else ""
        started = subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(port), self._token],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "DISTLITE_HOST_HINT": hint, **self._settings},
            text=True,
        )
        self._ranks.append(started)
        return started

    def memory(self) -> float:
        pages = int((self._folder / "statm").read_text().split()[1])
        return pages * resource.getpagesize() / MIB

    def descriptors(self) -> int:
        return len(list((self._folder / "fd").iterdir()))

    def processor(self) -> float:
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _inodes(self) -> set[str]:
        """Returns the numbers of the ranks' sockets."""
        own = set()
        for pid in self.pids:
            with contextlib.suppress(OSError):
                for fd in Path(f"/proc/{pid}/fd").iterdir():
                    with contextlib.suppress(OSError):
                        own.add(os.readlink(fd).removeprefix("socket:[")[:-1])
        return own

    def ports(self) -> list[int]:
        """Returns the TCP ports at which the ranks listen, but for the store's."""
        own, found = self._inodes(), set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in own:
                found.add(int(fields[1].rpartition(":")[2], 16))
        return sorted(found - {self.port})

    def names(self) -> list[str]:
        """Returns the names of the ranks' Unix sockets, without the zero byte."""
        own = self._inodes()
        lines = [
            line.split() for line in Path("/proc/net/unix").read_text().splitlines()
        ]
        return [
            line[7][1:]
            for line in lines
            if len(line) == 8 and line[6] in own and line[7].startswith("@")
        ]

    def hamper(self, seconds: float) -> None:
        """Stops rank 1 every now and then, so that rank 0 waits for it wherever it
        has come to."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, pause in ((signal.SIGSTOP, 0.1), (signal.SIGCONT, 0.02)):
                os.kill(self.pids[1], number)
                time.sleep(pause)

    def finish(self) -> None:
        """Lets the job come to its end; sets `slowest`, or why it failed."""
        first = self._ranks[0]
        assert first.stdin is not None and first.stdout is not None
        with contextlib.suppress(OSError):
            first.stdin.write("over\n")
            first.stdin.flush()
        line = first.stdout.readline()
        self._log.seek(0)
        said = self._log.read()
        if line:
            self.slowest = json.loads(line)[0]
        else:
            self.failure = said[-300:]
        if self._kind == "one host" and FALLBACK in said:
            self.failure = "ranks of one host were kept from sharing memory"

    def close(self) -> None:
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.communicate()
        self._log.close()


class Sight:
    """Keeps in a file what strangers see of a job: its ports and names.

    They could find them in /proc/net, but not tell them from those of other jobs, which
    are not to be attacked.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open = contextlib.ExitStack()
        self._folder = self._open.enter_context(own_folder("distlite-hostile-", "/tmp"))
        os.chmod(self._folder, 0o755)
        self._path = Path(self._folder, "sight")
        self._is_over = threading.Event()
        self._look()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _look(self) -> None:
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps([self._job.ports(), self._job.names()]))
        new.rename(self._path)

    def _watch(self) -> None:
        while not self._is_over.wait(0.005):
            self._look()

    def ports(self) -> list[int]:
        return list(json.loads(self._path.read_text())[0])

    def names(self) -> list[bytes]:
        names = json.loads(self._path.read_text())[1]
        return [b"\0" + name.encode() for name in names]

    def __enter__(self) -> Sight:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._open.close()


class Stranger:
    """A process of another user, if this one may become one, that runs `body` again and
    again until it is ended."""

    def __init__(self, body: Callable[[], None]) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(STRANGER)
                    os.setuid(STRANGER)
                while True:
                    body()
            finally:
                os._exit(1)

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)


def rest(seconds: float) -> None:
    """How long an attack goes on."""
    time.sleep(seconds)
