# SPDX-License-Identifier: BSD-3-Clause
"""Ranks as fresh processes, with a deadline and tracebacks that name their rank."""

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
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..launch.rank_process import call_lastingly
from ..stores.timeouts import end_after, seconds_of
from .faults import Fault, check_faults, schedule

# Seconds that the other ranks have to report their errors once one has failed.
GRACE_AFTER_FAILURE = 2.0
# Seconds for the stack dumps of ranks that are late.
GRACE_AFTER_ABORT = 10.0
OUTPUT_LIMIT = 20_000
MAIN = str(Path(__file__).with_name("rank_main.py"))
# The environment variable of ranks with the folder for their marks.
FOLDER = "DISTLITE_TESTING_FOLDER"
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}


@dataclass
class Outcome:
    """The outcome of a rank.

    Args:
        rank: The rank.
        value: The value that the rank returned.
        exception: The exception that it raised, if it can be pickled.
        traceback: The text of the traceback.
        returncode: The exit status of the process, negative after a signal.
        output: The output of the rank.
        is_late: Whether it had to be killed, or its operations aborted, at the end of
            the time.
        skip_reason: The reason given to `pytest.skip`.

    Example:
        >>> from distlite import testing
        >>> testing.Outcome(rank=0, value=3, returncode=0).is_good
        True
    """

    rank: int
    value: Any = None
    exception: BaseException | None = None  # None also if it could not be sent
    traceback: str = ""  # empty: the function returned
    returncode: int | None = None  # negative: a signal; 0: the function returned
    output: str = ""  # standard output and error
    is_late: bool = False
    skip_reason: str | None = None  # it called pytest.skip()

    @property
    def is_good(self) -> bool:
        """Returns whether the function returned."""
        return self.returncode == 0

    def describe(self) -> str:
        """Returns a description of the outcome, in lines that begin with the rank."""
        from ..launch.worker import describe_end

        if self.is_good:
            head = "returned"
        elif self.is_late and self.returncode is None:  # a thread
            head = "did not end in time, and its operations were aborted; it was at"
            return self._lines([head, *self.output.splitlines()])
        elif self.is_late:
            head = "did not end in time and was killed"
        elif self.skip_reason is not None:
            head = f"skipped: {self.skip_reason}"
        elif self.traceback:
            head = "failed"
        elif self.returncode is not None and self.returncode < 0:
            head = f"was {describe_end(self.returncode)}"
        else:
            head = f"exited with {self.returncode} before it returned"
        lines = [head, *self.traceback.splitlines()]
        if self.output:
            lines += ["output:", *self.output[-OUTPUT_LIMIT:].splitlines()]
        return self._lines(lines)

    def _lines(self, lines: list[str]) -> str:
        return "\n".join(f"rank {self.rank}: {line}" for line in lines)


class RanksFailed(AssertionError):
    """At least one rank failed; `outcomes` has those of all ranks.

    Args:
        message: The description of the failures.
        outcomes: The outcomes of all ranks.

    Example:
        >>> from distlite import testing
        >>> try:
        ...     with testing.world(2) as ranks:
        ...         ranks.run(lambda rank: 1 // rank)
        ... except testing.RanksFailed as error:
        ...     print([outcome.is_good for outcome in error.outcomes])
        [False, True]
    """

    def __init__(self, message: str, outcomes: list[Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *,
    timeout: timedelta | float = 60.0,
    **kwargs: Any,
) -> list[Any]:
    """Runs a function as several processes, the ranks of a default group.

    The function must be at the top level of a module that can be imported from its
    file; its arguments and result must be picklable. Parameters named `rank`,
    `world_size` and `init_method` (an address for this run) are filled in. No process
    outlives the call, or this process. All other arguments are those of `start_ranks`
    and of the function.

    Args:
        function: The function.
        world_size: The number of ranks.
        timeout: The time after which ranks that have not returned are killed, a
            `timedelta` or seconds.

    Returns:
        What each rank returned, as a list.

    Raises:
        RanksFailed: A rank raised an exception, was killed, or is late. The message has
            the traceback and the output of each, and of late ones the stacks of all
            threads.
        ValueError: Other processes cannot import the function.

    Example:
        >>> import calendar
        >>> from distlite import testing
        >>> testing.run_ranks(calendar.isleap, 2, year=2024)
        [True, True]
    """
    with _start(function, world_size, timeout, **kwargs) as job:
        outcomes = job.wait(timeout, is_ended_by_failure=True)
    check_outcomes(function, outcomes, kwargs.get("faults", ()))
    return [outcome.value for outcome in outcomes]


def rank_outcomes(
    function: Callable[..., Any],
    world_size: int,
    *,
    timeout: timedelta | float = 60.0,
    **kwargs: Any,
) -> list[Outcome]:
    """Runs a function as several processes, some of which may fail.

    Args:
        function: The function, as for `run_ranks`, like all other arguments.
        world_size: The number of ranks.
        timeout: The time after which ranks that have not returned are killed, a
            `timedelta` or seconds.

    Returns:
        The outcome of each rank, as a list of `Outcome`.

    Raises:
        ValueError: Other processes cannot import the function.

    Example:
        >>> import calendar
        >>> from distlite import testing
        >>> function = calendar.monthrange
        >>> outcomes = testing.rank_outcomes(function, 1, year=2024, month=13)
        >>> outcomes[0].is_good
        False
    """
    with _start(function, world_size, timeout, **kwargs) as job:
        return job.wait(timeout)


def start_ranks(
    function: Callable[..., Any],
    world_size: int,
    *,
    backend: str | None = "gloo",
    env: dict[str, str] | None = None,
    wrap: Sequence[Callable[[list[str]], list[str]]] | None = None,
    faults: Sequence[Fault] = (),
    **kwargs: Any,
) -> Job:
    """Starts a function as several processes, to kill, stop and delay some of them.

    Args:
        function: The function, as for `run_ranks`.
        world_size: The number of ranks.
        backend: The backend of the default group, which is made before the function is
            called and destroyed afterwards; None: there is none.
        env: Variables that are added to the environment of each rank.
        wrap: For each rank a function that takes the command of the rank and returns
            the command to run, for example in a container.
        faults: What happens to ranks at their operations, as a sequence of `Fault`.

    Returns:
        A `Job`, to be used in a with statement.

    Raises:
        ValueError: Other processes cannot import the function.

    Example:
        >>> import calendar
        >>> from distlite import testing
        >>> with testing.start_ranks(calendar.isleap, 2, year=2024) as job:
        ...     print([outcome.value for outcome in job.wait(timeout=30)])
        [True, True]
    """
    return Job(function, world_size, backend, env, wrap, None, kwargs, faults=faults)


def _start(
    function: Callable[..., Any],
    world_size: int,
    timeout: timedelta | float,
    *,
    backend: str | None = "gloo",
    env: dict[str, str] | None = None,
    wrap: Sequence[Callable[[list[str]], list[str]]] | None = None,
    faults: Sequence[Fault] = (),
    **kwargs: Any,
) -> Job:
    """As start_ranks(); operations of the default group end before the run does."""
    given = (function, world_size, backend, env, wrap, timeout, kwargs)
    return Job(*given, faults=faults)


def check_outcomes(
    function: Callable[..., Any], outcomes: list[Outcome], faults: Sequence[Fault] = ()
) -> None:
    """Raises RanksFailed unless all ranks returned."""
    name = getattr(function, "__qualname__", str(function))
    if text := describe_failed(name, outcomes):
        raise RanksFailed(schedule(faults) + text, outcomes)


def describe_failed(name: str, outcomes: list[Outcome]) -> str:
    """Returns the reports of the failed ranks, each line with its rank; "" if none."""
    failed = [outcome for outcome in outcomes if not outcome.is_good]
    if not failed:
        return ""
    # First the ranks that failed by themselves, then those that were killed because of
    # it.
    failed.sort(key=lambda outcome: (outcome.is_late, not outcome.traceback))
    head = f"{len(failed)} of {len(outcomes)} ranks of {name} failed"
    return "\n".join([head, *(outcome.describe() for outcome in failed)])


def mark(name: str) -> None:
    """Tells `Job.wait_for_mark` that a rank of `start_ranks` has reached a point.

    Args:
        name: The name of the point.

    Raises:
        RuntimeError: This process is not a rank of `start_ranks`.

    Example:
        >>> import contextlib
        >>> from distlite import testing
        >>> with contextlib.suppress(RuntimeError):  # this process is no such rank
        ...     testing.mark("half")
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        raise RuntimeError("mark() is for ranks of distlite.testing.start_ranks()")
    Path(folder, f"mark-{os.environ['RANK']}-{name}").touch()


class _Rank:
    """One process, its result pipe and its output file."""

    def __init__(
        self,
        rank: int,
        job: bytes,
        env: dict[str, str],
        output: Path,
        wrap: Callable[[list[str]], list[str]] | None,
    ) -> None:
        self.outcome = Outcome(rank)
        self.output = output
        self.message = bytearray()
        self.result_fd, result_end = os.pipe()
        stdin, stdin_end = os.pipe()
        with open(output, "wb") as sink:
            fds = (stdin, sink.fileno(), result_end)
            try:
                self.process = _start_process(env, *fds, wrap)
            except BaseException:
                os.close(self.result_fd)
                os.close(stdin_end)
                raise
            finally:
                os.close(stdin)
                os.close(result_end)
        with contextlib.suppress(BrokenPipeError), os.fdopen(stdin_end, "wb") as pipe:
            pipe.write(job)

    def signal(self, number: int) -> None:
        """Sends a signal to the process and to all processes that it started."""
        # EPERM: only processes of other users are left of its group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def is_over(self) -> bool:
        return self.process.poll() is not None

    def finish(self) -> Outcome:
        """Reads the output of the rank after its end."""
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


def _start_process(
    env: dict[str, str],
    stdin: int,
    output: int,
    result: int,
    wrap: Callable[[list[str]], list[str]] | None,
) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-X", "faulthandler", MAIN, str(result)]
    if wrap is not None:
        command = wrap(command)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            pass_fds=[result],
            start_new_session=True,
        )

    # The kernel kills the rank at the end of the thread that starts it.
    return call_lastingly(start)


def _describe_process(rank: _Rank) -> str:
    code = rank.process.returncode
    ended = "" if code is None else f" ended with {code}"
    return f"rank {rank.outcome.rank} is process {rank.process.pid}{ended}"


class Job:
    """The processes of `start_ranks`, to be used in a with statement.

    The end of the statement kills the processes that are still running.

    Args:
        function: As for `start_ranks`, like the other arguments.
        world_size: The number of ranks.
        backend: The backend of the default group, or None.
        env: Variables that are added to the environment of each rank.
        wrap: For each rank a function that changes its command.
        timeout: The time that operations of the default group may take, a `timedelta`
            or seconds.
        kwargs: The arguments of the function.
        rewrites: Whether failed assertions of the function's module show the values, as
            in pytest.
        faults: As for `start_ranks`.

    Example:
        >>> import calendar
        >>> from distlite import testing
        >>> with testing.start_ranks(calendar.isleap, 1, year=2024) as job:
        ...     print(job.pid(0) > 0, job.wait(timeout=30)[0].is_good)
        True True
    """

    def __init__(
        self,
        function: Callable[..., Any],
        world_size: int,
        backend: str | None,
        env: dict[str, str] | None,
        wrap: Sequence[Callable[[list[str]], list[str]]] | None,
        timeout: timedelta | float | None,
        kwargs: dict[str, Any],
        rewrites: bool = False,
        faults: Sequence[Fault] = (),
    ) -> None:
        if world_size < 1:
            raise ValueError(f"a world needs at least one rank, not {world_size}")
        check_faults(faults, world_size)
        place = _place_of(function)
        if place[0] == "__main__":
            # The name under which ranks import a script, whose classes may be in
            # results.
            sys.modules.setdefault("__mp_main__", sys.modules["__main__"])
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        self._ranks: list[_Rank] = []
        self._timers: list[threading.Timer] = []
        folder = Path(self._folder.name)
        end = None if timeout is None else end_after(timeout)
        address = kwargs.get("init_method", (folder / "rendezvous").as_uri())
        if "init_method" in _parameters(function):
            kwargs["init_method"] = address
        try:
            for rank in range(world_size):
                wrapper = wrap[rank] if wrap is not None else None
                # The wrapper may be the parent of a wrapped rank.
                parent = os.getpid() if wrapper is None else None
                head = (parent, sys.path, rewrites, *place)
                known = {"rank": rank, "world_size": world_size}
                takes = _parameters(function)
                given = {name: known[name] for name in known if name in takes}
                own = [
                    (each.kind, each.rank, each.at, each.seconds)
                    for each in faults
                    if each.rank == rank
                ]
                task = ((backend, address, end), {**given, **kwargs}, own)
                job = pickle.dumps(head) + pickle.dumps(task)
                environment = _environment(rank, world_size, env or {})
                environment[FOLDER] = str(folder)
                output = folder / f"{rank}"
                self._ranks.append(_Rank(rank, job, environment, output, wrapper))
        except BaseException:
            self.__exit__()
            raise

    def __repr__(self) -> str:
        # The processes are not polled here: an end that is noticed has to be handled.
        known = vars(self).get("_ranks", [])
        ranks = ", ".join(_describe_process(rank) for rank in known)
        return f"<distlite.testing.Job: {ranks or 'no ranks'}>"

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()
        for rank in self._ranks:
            rank.close()
        self._folder.cleanup()

    def pid(self, rank: int) -> int:
        """Returns the process id of a rank.

        Args:
            rank: The rank.
        """
        return self._ranks[rank].process.pid

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        """Sends a signal to a rank and to all processes that it has started.

        Args:
            rank: The rank.
            number: The signal, SIGKILL by default.
        """
        self._ranks[rank].signal(number)

    def stop(self, rank: int) -> None:
        """Stops a rank until `go_on`.

        Args:
            rank: The rank.
        """
        self._ranks[rank].signal(signal.SIGSTOP)

    def go_on(self, rank: int) -> None:
        """Lets a rank continue after `stop`.

        Args:
            rank: The rank.
        """
        self._ranks[rank].signal(signal.SIGCONT)

    def delay(self, rank: int, seconds: float) -> None:
        """Stops a rank for some time, and returns at once.

        Args:
            rank: The rank.
            seconds: The time in seconds.
        """
        self.stop(rank)
        timer = threading.Timer(seconds, self.go_on, [rank])
        self._timers.append(timer)
        timer.start()

    def wait_for_mark(
        self, rank: int, name: str, timeout: timedelta | float = 60.0
    ) -> None:
        """Waits until a rank has called `mark`.

        Args:
            rank: The rank.
            name: The name that the rank passes to `mark`.
            timeout: The time to wait, a `timedelta` or seconds.

        Raises:
            RanksFailed: The rank has ended before.
            TimeoutError: The rank has not called it in time.
        """
        path = Path(self._folder.name, f"mark-{rank}-{name}")
        limit = seconds_of(timeout)
        deadline = end_after(limit)
        while not path.exists():
            if self._ranks[rank].is_over() and not path.exists():
                outcome = self._ranks[rank].finish()
                text = f"rank {rank} ended before mark({name!r})\n{outcome.describe()}"
                raise RanksFailed(text, [outcome])
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"rank {rank} has not called mark({name!r}) for {limit:g} s"
                )
            time.sleep(0.005)

    def wait(
        self, timeout: timedelta | float = 60.0, *, is_ended_by_failure: bool = False
    ) -> list[Outcome]:
        """Waits until all ranks have ended, and kills those that are late.

        Args:
            timeout: The time to wait, a `timedelta` or seconds.
            is_ended_by_failure: If True, the first failure of a rank ends all ranks.

        Returns:
            The outcome of each rank, as a list of `Outcome`.
        """
        deadline = end_after(timeout)
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
        """Lets late ranks print their stacks (faulthandler), and kills them."""
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
        """Yields the ranks in the order of their ends, until the deadline."""
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
        """Reads results as they come, because a large one does not fit into the
        pipe."""
        by_fd = {rank.result_fd: rank for rank in ranks}
        poller = select.poll()  # select() takes no descriptor beyond 1023
        for fd in by_fd:
            poller.register(fd, select.POLLIN)
        for fd, _ in poller.poll(1000 * timeout):
            part = os.read(fd, 1 << 20)
            by_fd[fd].message += part
            if not part:
                # The pipe is closed, so the process is about to end: waiting avoids a
                # busy loop.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    by_fd[fd].process.wait(timeout)


def _parameters(function: Callable[..., Any]) -> Any:
    return inspect.signature(function).parameters


def _place_of(function: Callable[..., Any]) -> tuple[str, str, str]:
    """Returns the module of a function, the module's file, and the name in it."""
    name = getattr(function, "__qualname__", None)
    try:
        # The file of the function itself, and not that of its decorator.
        path = inspect.getfile(inspect.unwrap(function))
    except (OSError, TypeError):
        path = ""
    # "<locals>" and "<lambda>" are not names in a module.
    if name is None or "<" in name or not os.path.isfile(path):
        raise ValueError(
            f"{name or repr(function)}: other processes cannot import it: it must be "
            "defined at the top of a module; distlite.testing.world() runs any "
            "function, "
            "as threads"
        )
    return function.__module__, path, name


def _environment(rank: int, world_size: int, extra: dict[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        **UNBUFFERED,
        **extra,
    }


def _take_message(outcome: Outcome, message: bytes) -> None:
    try:
        kind, content, text = pickle.loads(message)
    except Exception as error:
        outcome.traceback = f"its result cannot be loaded here: {error!r}"
        outcome.returncode = outcome.returncode or 1
        return
    if kind == "value":
        outcome.value = content
    elif kind == "skip":
        outcome.skip_reason = content
    else:
        outcome.traceback = text
        with contextlib.suppress(Exception):
            outcome.exception = None if content is None else pickle.loads(content)
