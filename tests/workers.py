# SPDX-License-Identifier: BSD-3-Clause
"""N ranks as fresh processes, for tests of several processes.

    def add_up(rank: int, world_size: int, init_method: str) -> float: ...

    assert run_ranks(add_up, 4, timeout=20) == [6.0] * 4

The function lies at the top of its module, takes `rank` and `world_size` and further
keyword arguments; whatever it returns comes back, by rank.  A parameter `init_method`
is given a file:// address of this run when the test names none.  When a rank fails, is
killed, or is late, all are killed and the error shows each rank's traceback and output.
Nothing outlives the call, or pytest.

A module that workers import pays for its imports in each of them: functions that many
tests run lie best in a module that does not import pytest.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from netns import Host

# What takes less has not waited for a group's timeout, which is a minute in tests; and
# what takes some milliseconds takes less even where many programs share few cores.
SOON = 5.0
# Once one rank has failed the others get this long to say what they saw of it.
GRACE_AFTER_FAILURE = 2.0
# For the stack dumps of ranks that are late.
GRACE_AFTER_ABORT = 10.0
OUTPUT_LIMIT = 20_000
MAIN = str(Path(__file__).with_name("workers_main.py"))


@dataclass
class Outcome:
    """What became of one rank."""

    rank: int
    value: Any = None
    exception: BaseException | None = None  # None also where it could not be sent
    traceback: str = ""  # empty: the function returned
    returncode: int | None = None  # negative: a signal; 0: the function returned
    output: str = ""  # standard output and error
    is_late: bool = False

    @property
    def is_good(self) -> bool:
        return self.returncode == 0

    def describe(self) -> str:
        """Several lines, each beginning with the rank."""
        if self.is_good:
            head = "returned"
        elif self.is_late:
            head = "was late and killed"
        elif self.traceback:
            head = "failed"
        elif self.returncode is not None and self.returncode < 0:
            head = f"was killed by {signal.Signals(-self.returncode).name}"
        else:
            head = f"exited with {self.returncode} before it returned"
        lines = [head, *self.traceback.splitlines()]
        if self.output:
            lines += ["output:", *self.output[-OUTPUT_LIMIT:].splitlines()]
        return "\n".join(f"rank {self.rank}: {line}" for line in lines)


class RanksFailed(AssertionError):
    """At least one rank failed; `outcomes` has all of them."""

    def __init__(self, message: str, outcomes: list[Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    hosts: Sequence[Host] | None = None,
    **kwargs: Any,
) -> list[Any]:
    """What `function(rank, world_size, **kwargs)` returned, by rank.

    `hosts`, by rank, are where they run (see netns.py).
    """
    with _Run(function, world_size, env, hosts, kwargs) as run:
        outcomes = run.wait(timeout, is_ended_by_failure=True)
    failed = [outcome for outcome in outcomes if not outcome.is_good]
    if failed:
        # First those who know why, then those who were killed for it.
        failed.sort(key=lambda outcome: (outcome.is_late, not outcome.traceback))
        name = getattr(function, "__qualname__", str(function))
        head = f"{len(failed)} of {world_size} ranks of {name} failed"
        texts = [outcome.describe() for outcome in failed]
        raise RanksFailed("\n".join([head, *texts]), outcomes)
    return [outcome.value for outcome in outcomes]


def rank_outcomes(
    function: Callable[..., Any],
    world_size: int,
    *,
    timeout: float = 60.0,
    env: dict[str, str] | None = None,
    hosts: Sequence[Host] | None = None,
    **kwargs: Any,
) -> list[Outcome]:
    """Like run_ranks, where some ranks are meant to fail: what became of each rank."""
    with _Run(function, world_size, env, hosts, kwargs) as run:
        return run.wait(timeout, is_ended_by_failure=False)


class _Rank:
    """One process, its result pipe and its output file."""

    def __init__(
        self,
        rank: int,
        job: bytes,
        env: dict[str, str],
        output: Path,
        host: Host | None,
    ) -> None:
        self.outcome = Outcome(rank)
        self.output = output
        self.message = bytearray()
        self.result_fd, result_end = os.pipe()
        command = [sys.executable, "-X", "faulthandler", MAIN, str(result_end)]
        with open(output, "wb") as sink:
            self.process = subprocess.Popen(
                command if host is None else host.command(command),
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=[result_end],
                start_new_session=True,
            )
        os.close(result_end)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(job)
            self.process.stdin.close()

    def signal(self, number: int) -> None:
        """Reaches the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> Outcome:
        """After its end: reads what it left."""
        outcome = self.outcome
        outcome.returncode = self.process.wait()
        self.signal(signal.SIGKILL)
        os.set_blocking(self.result_fd, False)
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.result_fd, 1 << 20):
                self.message += part
        if self.message:
            _take_message(outcome, bytes(self.message))
        outcome.output = self.output.read_text(errors="replace")
        return outcome

    def close(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()
        os.close(self.result_fd)


class _Run:
    """All ranks of one call; leaving the context kills what is left."""

    def __init__(
        self,
        function: Callable[..., Any],
        world_size: int,
        env: dict[str, str] | None,
        hosts: Sequence[Host] | None,
        kwargs: dict[str, Any],
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self._ranks: list[_Rank] = []
        folder = Path(self._folder.name)
        if "init_method" in inspect.signature(function).parameters:
            kwargs.setdefault("init_method", f"file://{folder}/rendezvous")
        try:
            for rank in range(world_size):
                job = _job(function, rank, world_size, kwargs)
                environment = _environment(rank, world_size, env or {})
                host = hosts[rank] if hosts is not None else None
                output = folder / f"{rank}"
                self._ranks.append(_Rank(rank, job, environment, output, host))
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> _Run:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            rank.close()
        self._folder.cleanup()

    def wait(self, timeout: float, *, is_ended_by_failure: bool) -> list[Outcome]:
        deadline = time.monotonic() + timeout
        running = set(range(len(self._ranks)))
        for rank in self._ends(deadline):
            running.discard(rank.outcome.rank)
            if is_ended_by_failure and rank.process.returncode != 0:
                deadline = min(deadline, time.monotonic() + GRACE_AFTER_FAILURE)
                break
        for rank in self._ends(deadline, running):
            running.discard(rank.outcome.rank)
        self._abort(running)
        return [rank.finish() for rank in self._ranks]

    def _abort(self, late: set[int]) -> None:
        """Late ranks show their stacks (faulthandler) before they die."""
        for number in late:
            self._ranks[number].outcome.is_late = True
            self._ranks[number].signal(signal.SIGABRT)
        for _ in self._ends(time.monotonic() + GRACE_AFTER_ABORT, set(late)):
            pass
        for number in late:
            self._ranks[number].signal(signal.SIGKILL)

    def _ends(
        self, deadline: float, numbers: set[int] | None = None
    ) -> Iterator[_Rank]:
        """Ranks in the order of their ends, until the deadline."""
        waiting = set(range(len(self._ranks))) if numbers is None else set(numbers)
        while waiting:
            for number in sorted(waiting):
                if self._ranks[number].is_over():
                    waiting.discard(number)
                    yield self._ranks[number]
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._read([self._ranks[number] for number in waiting], min(left, 0.05))

    @staticmethod
    def _read(ranks: list[_Rank], timeout: float) -> None:
        """Takes results as they come: a large one does not fit into the pipe."""
        by_fd = {rank.result_fd: rank for rank in ranks}
        for fd in select.select(list(by_fd), [], [], timeout)[0]:
            part = os.read(fd, 1 << 20)
            by_fd[fd].message += part
            if not part:
                # Closed: the process is at its end, wait for it rather than spin.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    by_fd[fd].process.wait(timeout)


def _job(
    function: Callable[..., Any], rank: int, world_size: int, kwargs: dict[str, Any]
) -> bytes:
    """What workers_main.py reads: where the function is, then its arguments."""
    head = (
        os.getpid(),
        sys.path,
        function.__module__,
        inspect.getfile(function),
        function.__qualname__,
    )
    arguments = {"rank": rank, "world_size": world_size, **kwargs}
    return pickle.dumps(head) + pickle.dumps(arguments)


def _environment(rank: int, world_size: int, extra: dict[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "PYTHONUNBUFFERED": "1",
        **extra,
    }


def _take_message(outcome: Outcome, message: bytes) -> None:
    try:
        kind, content, text = pickle.loads(message)
    except Exception as error:
        outcome.traceback = f"its result does not load here: {error!r}"
        outcome.returncode = outcome.returncode or 1
        return
    if kind == "value":
        outcome.value = content
    else:
        outcome.exception, outcome.traceback = content, text
