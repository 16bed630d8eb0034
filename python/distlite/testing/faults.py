# SPDX-License-Identifier: BSD-3-Clause
"""Faults that ranks under test run into, at operations that are given or drawn."""

from __future__ import annotations

import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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

    A rank that is a thread shares its process with the others, so `"stop"` delays it,
    `"kill"` aborts its groups, and `"cut"` applies to the connections of all.

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


def draw_faults(
    seed: int,
    ranks: int | Sequence[int],
    *,
    operations: int = 100,
    kinds: Sequence[str] = KINDS,
    most: int = 3,
    longest: float = 1.0,
) -> list[Fault]:
    """Draws faults, the same ones for the same seed and arguments.

    Args:
        seed: The seed.
        ranks: The ranks that may be hit, or their number.
        operations: The faults happen before one of so many operations of a rank.
        kinds: The kinds of `Fault` that may occur.
        most: The largest number of faults; there is at least one.
        longest: The longest delay or stop in seconds; each call is slowed down by at
            most a hundredth of it.

    Returns:
        The faults, to be passed to `run_ranks` and the like.

    Example:
        >>> from distlite import testing
        >>> faults = testing.draw_faults(7, 4, kinds=["kill"], most=1)
        >>> faults == testing.draw_faults(7, 4, kinds=["kill"], most=1)
        True
    """
    choice = random.Random(seed)
    among = range(ranks) if isinstance(ranks, int) else ranks
    faults = []
    for _ in range(choice.randint(1, most)):
        kind, rank = choice.choice(kinds), choice.choice(among)
        at = choice.randint(1, operations)
        span = choice.uniform(0, longest) / (100 if kind == "slow" else 1)
        takes_time = kind in ("delay", "slow", "stop")
        faults.append(Fault(kind, rank, at, round(span, 4) if takes_time else 0.0))
    return faults


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
        abort: What is called instead of a kill, if the rank is a thread.
    """

    def __init__(
        self, faults: Sequence[Fault], abort: Callable[[], None] | None = None
    ) -> None:
        self._faults, self._abort = faults, abort
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
                self._inject(each)

    def _inject(self, fault: Fault) -> None:
        is_thread = self._abort is not None
        if fault.kind == "cut":
            _cut()
        elif fault.kind == "kill" and self._abort is not None:
            self._abort()
        elif fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif fault.kind == "stop" and not is_thread:
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
def hit(before: Callable[[object], object] | None) -> Iterator[None]:
    """Has it called before each operation within a with statement."""
    if before is None:
        yield
        return
    from ..hooks import register_hooks

    with register_hooks(before=before):
        yield
