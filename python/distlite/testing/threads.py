# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as threads of this process, whose groups use shared memory as those of
processes do.

Each has a world of its own: in its thread `distlite.get_rank()` and a collective
without a group mean its own default group.  Threads that a rank starts use the world of
the process.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any

import distlite
from distlite import _C
from distlite.groups.world import RoutedWorld, ThreadWorld, World, world as _world
from distlite.stores.timeouts import LONGEST_WAIT, end_after, seconds_of
from distlite.testing.faults import Fault, Victim, check_faults, hit
from distlite.testing.processes import (
    GRACE_AFTER_ABORT,
    GRACE_AFTER_FAILURE,
    Outcome,
    check_outcomes,
)

Task = Callable[[], None]

# Seconds after the timeout for the ranks whose operations it has ended to return.
GRACE = 2.0

_lock = threading.Lock()
_open_count = 0


def _route(change: int) -> None:
    """Counts ranks that are threads; while there are any, each thread uses its own
    world."""
    global _open_count
    with _lock:
        _open_count += change
        object.__setattr__(_world, "__class__", RoutedWorld if _open_count else World)


class _Rank:
    """One thread, which runs the functions that it is given, one after another."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.world = ThreadWorld()
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.thread = threading.Thread(
            target=self._run, name=f"rank {number}", daemon=True
        )
        self.thread.start()

    def _run(self) -> None:
        number = threading.get_ident()
        RoutedWorld.of_threads[number] = self.world
        _C._set_thread_group(None)
        try:
            while (task := self.tasks.get()) is not None:
                task()
        finally:
            _C._set_thread_group(None)
            del RoutedWorld.of_threads[number]

    def submit(
        self,
        function: Callable[[], Any],
        outcome: Outcome,
        ended: queue.SimpleQueue[Outcome],
    ) -> None:
        """Lets the thread call the function, fill in the outcome and put it into the
        queue."""

        def task() -> None:
            try:
                outcome.value = function()
                outcome.returncode = 0
            except BaseException as error:
                outcome.exception = error
                # Without this frame.
                inner = error.__traceback__ and error.__traceback__.tb_next
                lines = traceback.format_exception(type(error), error, inner)
                outcome.traceback = "".join(lines)
                outcome.returncode = 1
            ended.put(outcome)

        self.tasks.put(task)

    def stack(self) -> str:
        """Returns where the thread is in the program."""
        frame = sys._current_frames().get(self.thread.ident or 0)
        stack = traceback.extract_stack(frame) if frame is not None else []
        own = [i for i, each in enumerate(stack) if each.filename == __file__]
        return "".join(traceback.format_list(stack[max(own, default=-1) + 1 :]))

    def abort(self) -> None:
        """Aborts the groups of the thread, which ends the operations that it waits
        for."""
        for group in list(self.world.groups):
            group.abort()


class Ranks:
    """The ranks of `world`; `len()` returns how many there are.

    Args:
        size: The number of ranks.
        backend: The backend of the default group, or None.
        timeout: The time after which a run is late, a `timedelta` or seconds.

    Example:
        >>> from distlite import testing
        >>> with testing.world(2) as ranks:
        ...     print(len(ranks))
        2
    """

    def __init__(
        self, size: int, backend: str | None, timeout: timedelta | float
    ) -> None:
        if size < 1:
            raise ValueError(f"a world needs at least one rank, not {size}")
        self.timeout = seconds_of(timeout)
        self._store = distlite.HashStore()
        _route(1)
        self._ranks = [_Rank(number) for number in range(size)]
        if backend is not None:
            try:
                self.run(self._begin, backend, size)
            except BaseException:
                self._end()
                raise

    def __repr__(self) -> str:
        ranks = vars(self).get("_ranks", [])
        running = sum(rank.thread.is_alive() for rank in ranks)
        return f"<distlite.testing.Ranks: {len(ranks)} threads, {running} running>"

    def __len__(self) -> int:
        return len(self._ranks)

    def run(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: timedelta | float | None = None,
        faults: Sequence[Fault] = (),
        **kwargs: Any,
    ) -> list[Any]:
        """Runs a function on all ranks.

        Args:
            function: The function. A parameter `rank` is given; all others are passed
                on.
            timeout: The time after which the run is late, a `timedelta` or seconds;
                None is the value of `world`.
            faults: What happens to ranks at their operations, as a sequence of
                `Fault`.

        Returns:
            What each rank returned, as a list.

        Raises:
            RanksFailed: A rank raised an exception or is late. The message has the
                tracebacks of all ranks, and the cause is the first exception.

        Example:
            >>> from distlite import testing
            >>> with testing.world(2) as ranks:
            ...     print(ranks.run(lambda rank, step: rank + step, step=10))
            [10, 11]
        """
        outcomes = self._outcomes(function, args, kwargs, timeout, True, faults)
        first = next((each.exception for each in outcomes if each.exception), None)
        try:
            check_outcomes(function, outcomes, faults)
        except AssertionError as error:
            raise error from first
        return [outcome.value for outcome in outcomes]

    def outcomes(
        self,
        function: Callable[..., Any],
        *args: Any,
        timeout: timedelta | float | None = None,
        faults: Sequence[Fault] = (),
        **kwargs: Any,
    ) -> list[Outcome]:
        """Runs a function on all ranks, some of which are meant to fail.

        Args:
            function: The function. A parameter `rank` is given; all others are passed
                on.
            timeout: The time after which the run is late, a `timedelta` or seconds;
                None is the value of `world`.
            faults: What happens to ranks at their operations, as a sequence of
                `Fault`.

        Returns:
            The outcome of each rank, as a list of `Outcome`.

        Example:
            >>> from distlite import testing
            >>> with testing.world(2) as ranks:
            ...     outcomes = ranks.outcomes(lambda rank: 1 // rank)
            ...     print([outcome.is_good for outcome in outcomes])
            [False, True]
        """
        return self._outcomes(function, args, kwargs, timeout, False, faults)

    def _outcomes(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        timeout: timedelta | float | None,
        is_ended_by_failure: bool,
        faults: Sequence[Fault],
    ) -> list[Outcome]:
        check_faults(faults, len(self))
        limit = self.timeout if timeout is None else timeout
        takes_rank = _takes_rank(function)
        ended: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        outcomes = [Outcome(rank.number) for rank in self._ranks]
        running = set(range(len(self._ranks)))
        with hit(self._victims(faults) if faults else None):
            for rank, outcome in zip(self._ranks, outcomes, strict=True):
                named = {"rank": rank.number} if takes_rank else {}
                rank.submit(partial(function, *args, **named, **kwargs), outcome, ended)
            # Operations have the same timeout, and their errors name the late ranks.
            deadline = end_after(limit) + GRACE
            for outcome in _ends(ended, running, deadline):
                if is_ended_by_failure and outcome.returncode != 0:
                    deadline = min(deadline, time.monotonic() + GRACE_AFTER_FAILURE)
                    break
            for _ in _ends(ended, running, deadline):
                pass
            self._abort(running, outcomes, ended)
        return outcomes

    def _victims(self, faults: Sequence[Fault]) -> Callable[[object], object]:
        """Returns what is called before each operation, in the thread of its rank."""
        victims = {
            rank.thread.ident: Victim(
                [each for each in faults if each.rank == rank.number], rank.abort
            )
            for rank in self._ranks
        }

        def before(operation: object) -> None:
            victim = victims.get(threading.get_ident())
            if victim is not None:
                victim.before(operation)

        return before

    def _abort(
        self, late: set[int], outcomes: list[Outcome], ended: queue.SimpleQueue[Outcome]
    ) -> None:
        """Records where late ranks are, and aborts their operations."""
        places = {number: self._ranks[number].stack() for number in late}
        for number in late:
            self._ranks[number].abort()
        for _ in _ends(ended, set(late), time.monotonic() + GRACE_AFTER_ABORT):
            pass
        for number, place in places.items():
            outcomes[number] = Outcome(number, output=place, is_late=True)

    def _begin(self, backend: str, size: int, rank: int) -> None:
        distlite.init_process_group(
            backend, store=self._store, rank=rank, world_size=size, timeout=self.timeout
        )

    def _end(self) -> None:
        def leave() -> None:
            if distlite.is_initialized():
                distlite.destroy_process_group()

        try:
            outcomes = self.outcomes(leave)
        finally:
            for rank in self._ranks:
                rank.tasks.put(None)
            for rank in self._ranks:
                rank.thread.join(GRACE_AFTER_ABORT)
            _route(-1)
        check_outcomes(leave, outcomes)

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            for rank in self._ranks:
                rank.abort()
            try:
                self._end()
            except AssertionError:
                return  # a consequence of the error that is being raised
            return
        self._end()


def _takes_rank(function: Callable[..., Any]) -> bool:
    try:
        return "rank" in signature(function).parameters
    except ValueError:  # of a built-in function
        return False


def _ends(
    ended: queue.SimpleQueue[Outcome], running: set[int], deadline: float
) -> Iterator[Outcome]:
    """Yields ranks as they end, and removes them from `running`, until none is left or
    the deadline has passed."""
    while running:
        left = max(0.0, deadline - time.monotonic())
        try:
            outcome = ended.get(timeout=min(left, LONGEST_WAIT))
        except queue.Empty:
            if left > LONGEST_WAIT:
                continue
            return
        running.discard(outcome.rank)
        yield outcome


def world(
    size: int, *, backend: str | None = "gloo", timeout: timedelta | float = 60.0
) -> Ranks:
    """Starts ranks that are threads of this process, each with its own default group.

    Nothing is pickled and functions may be of any kind, which suits notebooks and quick
    tests. Such a rank cannot be killed or stopped; use `start_ranks` for that.

    Args:
        size: The number of ranks.
        backend: The backend of the default group; with None the function makes its own
            groups.
        timeout: The time after which a run is late, and its operations end: a
            `timedelta` or seconds.

    Returns:
        `Ranks`, to be used in a with statement.

    Raises:
        ValueError: `size` is less than 1.

    Example:
        >>> from distlite import testing
        >>> with testing.world(2) as ranks:
        ...     print(ranks.run(dist.get_rank))
        [0, 1]
    """
    return Ranks(size, backend, timeout)
