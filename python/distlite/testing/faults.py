# SPDX-License-Identifier: BSD-3-Clause
"""Faults that ranks under test run into, at operations that are given."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

KINDS = ("delay", "slow", "stop", "cut", "kill")


@dataclass(frozen=True)
class Fault:
    """What happens to a rank when it calls an operation.

    A rank's operations are those that `distlite.register_hooks` sees, in all groups,
    counted from 1 as they are called.

    The kinds are:

    - `"delay"`: the thread of the call sleeps.
    - `"slow"`: the same, before this operation and before each later one.
    - `"stop"`: the process is stopped, with all of its threads, and continued.
    - `"cut"`: all TCP connections of the process are shut down.
    - `"kill"`: the process is killed by SIGKILL.

    Args:
        kind: What happens.
        rank: The rank to which it happens.
        at: The number of the operation.
        seconds: The time of a delay or stop.

    Raises:
        ValueError: The kind is unknown, or a number is negative.

    Example:
        >>> from distlite import testing
        >>> testing.Fault("kill", rank=2, at=50)
        Fault('kill', rank=2, at=50)
    """

    kind: str
    rank: int
    at: int = 1
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(map(repr, KINDS))
            raise ValueError(f"a fault is one of {known}, not {self.kind!r}")
        if self.rank < 0 or self.at < 1 or not 0 <= self.seconds < float("inf"):
            raise ValueError(
                f"{self!r}: ranks are counted from 0, operations from 1, and seconds "
                "are not negative"
            )

    def __repr__(self) -> str:
        seconds = f", seconds={self.seconds:g}" if self.seconds else ""
        return f"Fault({self.kind!r}, rank={self.rank}, at={self.at}{seconds})"


def check_faults(faults: Sequence[Fault], size: int) -> None:
    for each in faults:
        if each.rank >= size:
            raise ValueError(f"{each!r}: there are {size} ranks")


def schedule(faults: Sequence[Fault]) -> str:
    """Returns the faults in a line, as a program would write them; "" if none."""
    return f"faults: {list(faults)!r}\n" if faults else ""


class Victim:
    """A rank that runs into faults.

    Args:
        faults: Those of this rank.
    """

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._count = 0
        self._lock = threading.Lock()

    def before(self, operation: object) -> None:
        with self._lock:
            self._count += 1
            count = self._count
        for each in self._faults:
            is_slow = each.kind == "slow" and each.at < count
            if each.at == count:
                print(f"{each!r}: {operation!r}", file=sys.stderr, flush=True)
            if each.at == count or is_slow:
                self._happen(each)

    def _happen(self, fault: Fault) -> None:
        if fault.kind == "cut":
            _cut()
        elif fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "stop":
            _stop(fault.seconds)
        else:
            time.sleep(fault.seconds)


def _stop(seconds: float) -> None:
    """Stops this process; another one, of its process group, lets it continue."""
    pid = os.getpid()
    code = f"kill -STOP {pid}; sleep {seconds:f}; kill -CONT {pid}"
    subprocess.run(["/bin/sh", "-c", code], check=False)


def _cut() -> None:
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if not stat.S_ISSOCK(os.stat(f"/proc/self/fd/{name}").st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as copy:
                if copy.family in (socket.AF_INET, socket.AF_INET6):
                    copy.getpeername()  # fails for a listening socket, which stays
                    copy.shutdown(socket.SHUT_RDWR)


@contextmanager
def hit(faults: Sequence[Fault]) -> Iterator[None]:
    """Lets this rank run into the faults within a with statement."""
    if not faults:
        yield
        return
    from ..hooks import register_hooks

    with register_hooks(before=Victim(faults).before):
        yield
