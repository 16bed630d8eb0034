# SPDX-License-Identifier: BSD-3-Clause
"""Starts ranks as processes of a program, as torch.multiprocessing.spawn does.

    from distlite.spawn import spawn
    spawn(train, args=("tcp://127.0.0.1:29500", 4), nprocs=4)  # train(i, *args)

The module itself can be called as well: `distlite.spawn(train, nprocs=4)`.

The first one that fails ends the others; its traceback is part of the exception. If a
rank failed only because it lost another one, that other one counts as the first.
"""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from . import _C
from .launch.rank_process import NEEDED, call_lastingly, end_with_parent

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]

DEFAULT_GRACE = 30.0  # torch's, from SIGTERM to SIGKILL
TABLE_POLL_TIME = 0.02  # between checks whether the table of a failure is written
INTERRUPTED = 128 + signal.SIGINT  # as in a shell
ANY_TEXT = "surrogatepass"  # a traceback may contain surrogates


class ProcessException(Exception):
    """A process failed.

    Args:
        msg: The text.
        error_index: The index of the process.
        pid: The id of the process, also as `error_pid`.

    Example:
        >>> from distlite import spawn
        >>> spawn.ProcessException("process 0 failed", 0, 4711).error_index
        0
    """

    def __init__(self, msg: str, error_index: int, pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = pid

    @property
    def error_pid(self) -> int:
        """The id of the process, the same as `pid`."""
        return self.pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)


class ProcessRaisedException(ProcessException):
    """The function of a process raised an exception; the text has its traceback.

    Args:
        msg: The text.
        error_index: The index of the process.
        error_pid: The id of the process.

    Example:
        >>> import time
        >>> from distlite import spawn
        >>> try:
        ...     spawn.spawn(time.ctime, ("x",))
        ... except spawn.ProcessRaisedException as error:
        ...     print("TypeError" in str(error))
        True
    """

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """A process ended by itself or by a signal, before its function had returned.

    Args:
        msg: The text.
        error_index: The index of the process.
        error_pid: The id of the process.
        exit_code: The exit status, negative after a signal.
        signal_name: The name of the signal, or None.

    Example:
        >>> from distlite import spawn
        >>> spawn.ProcessExitedException("process 0 ended", 0, 4711, 3).exit_code
        3
    """

    def __init__(
        self,
        msg: str,
        error_index: int,
        error_pid: int,
        exit_code: int,
        signal_name: str | None = None,
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        arguments = (self.msg, self.error_index, self.pid)
        return type(self), (*arguments, self.exit_code, self.signal_name)


class ProcessContext:
    """The processes that `start_processes` has started.

    Args:
        processes: The processes.
        errors: A connection for each process, which transmits its exception.

    Example:
        >>> import time
        >>> from distlite import spawn
        >>> context = spawn.start_processes(time.ctime, nprocs=2, join=False)
        >>> len(context.pids()), context.join(timeout=20)
        (2, True)
    """

    def __init__(
        self, processes: Sequence[BaseProcess], errors: Sequence[Connection]
    ) -> None:
        self.processes = list(processes)
        self._errors = list(errors)
        self._indices: dict[object, int] = {
            p.sentinel: i for i, p in enumerate(self.processes)
        }

    def __repr__(self) -> str:
        # It shows what `join` has seen, without asking the kernel about processes.
        known = vars(self)
        if "_indices" not in known:
            return f"<{type(self).__name__} at {id(self):#x}, before __init__()>"
        return (
            f"<{type(self).__name__}: processes {self.pids()}, "
            f"{len(self._indices)} of them not joined>"
        )

    def _sentinels(self) -> list[int]:
        return [self.processes[index].sentinel for index in self._indices.values()]

    def pids(self) -> list[int]:
        """Returns the ids of the processes."""
        return [int(process.pid or 0) for process in self.processes]

    def join(
        self,
        timeout: timedelta | float | None = None,
        grace_period: float | None = None,
    ) -> bool:
        """Waits until all processes have ended.

        If one fails, the others have a moment to write the table of the failure; then
        they get SIGTERM, and SIGKILL after the grace period.

        Args:
            timeout: The time to wait, a `timedelta` or seconds; None is no limit.
            grace_period: The seconds from SIGTERM to SIGKILL; None is 30.

        Returns:
            True if all have ended well, False if some are still running after
            `timeout`.

        Raises:
            ProcessRaisedException: The function of a process raised an exception.
            ProcessExitedException: A process ended otherwise.
        """
        from .stores.timeouts import LONGEST_WAIT, seconds_of

        seconds = float("inf") if timeout is None else seconds_of(timeout)
        limit = time.monotonic() + seconds
        while self._indices:
            left = min(max(0.0, limit - time.monotonic()), LONGEST_WAIT)
            ended = multiprocessing.connection.wait(self._sentinels(), left)
            failed = self._take_failed(ended)
            if failed:
                cause = self._cause(failed)
                self._await_table()
                self.end(grace_period)
                self._raise(cause)
            if time.monotonic() >= limit:
                break
        return not self._indices

    def _take_failed(self, ended: Sequence[object]) -> list[int]:
        indices = sorted(self._indices.pop(sentinel) for sentinel in ended)
        for index in indices:
            self.processes[index].join()
        return [index for index in indices if self.processes[index].exitcode != 0]

    def _cause(self, failed: list[int]) -> int:
        """Returns the process that looks like the cause, as the launcher does: not a
        rank that lost a peer if that peer has failed as well."""
        from .launch.errors import SETTLING_TIME, is_consequence

        def has_followed(index: int) -> bool:
            return is_consequence(self._traceback_of(index).splitlines())

        limit = time.monotonic() + SETTLING_TIME
        while True:
            cause = min(failed, key=has_followed)
            left = limit - time.monotonic()
            if not has_followed(cause) or not self._indices or left <= 0:
                return cause
            ended = multiprocessing.connection.wait(self._sentinels(), left)
            failed = [cause, *self._take_failed(ended)]

    def _await_table(self) -> None:
        """Gives the others a moment to write the table of the failure, as the launcher
        does."""
        from .launch.errors import LastWords

        words = LastWords(self.pids())
        while self._indices and words.are_pending():
            # The end of each process is handled once.
            ended = multiprocessing.connection.wait(self._sentinels(), TABLE_POLL_TIME)
            for sentinel in ended:
                del self._indices[sentinel]

    def end(self, grace_period: float | None = None) -> None:
        """Ends the processes that are still running, and waits for their end.

        Args:
            grace_period: The seconds from SIGTERM to SIGKILL; None is 30.

        Example:
            >>> import time
            >>> from distlite import spawn
            >>> context = spawn.start_processes(time.sleep, (60,), join=False)
            >>> context.end()
            >>> context.processes[0].is_alive()
            False
        """
        from .stores.timeouts import LONGEST_WAIT

        running = [p for p in self.processes if p.is_alive()]
        for process in running:
            process.terminate()
        grace = DEFAULT_GRACE if grace_period is None else grace_period
        limit = time.monotonic() + grace
        for process in running:
            while process.is_alive() and (left := limit - time.monotonic()) > 0:
                process.join(min(left, LONGEST_WAIT))
        for process in running:
            if process.is_alive():
                process.kill()
            process.join()
        self._indices.clear()
        _C._recordings_sweep()

    def _traceback_of(self, index: int) -> str:
        """Returns the traceback that a process has written."""
        fd = self._errors[index].fileno()
        return os.pread(fd, os.fstat(fd).st_size, 0).decode("utf-8", ANY_TEXT)

    def _raise(self, index: int) -> NoReturn:
        process = self.processes[index]
        pid, code = int(process.pid or 0), int(process.exitcode or 0)
        if traceback := self._traceback_of(index):
            text = f"\n\n-- Process {index} terminated with the following error:\n"
            raise ProcessRaisedException(text + traceback, index, pid)
        if code >= 0:
            text = f"process {index} terminated with exit code {code}"
            raise ProcessExitedException(text, index, pid, code)
        name = _signal_name(-code)
        text = f"process {index} terminated with signal {name}"
        raise ProcessExitedException(text, index, pid, code, name)


# torch's older name.
SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Calls a function in several new processes.

    The function gets the index of its process, from 0 on, and then `args`.

    Args:
        fn: The function.
        args: Further arguments of the function, a tuple.
        nprocs: The number of processes.
        join: If True, the call returns when all processes have ended.
        daemon: Whether the processes are daemons, which cannot start processes
            themselves.
        start_method: "spawn", "fork" or "forkserver", as for `multiprocessing`.

    Returns:
        None, or a `ProcessContext` if `join` is False.

    Raises:
        AttributeError: The processes are not forked and could not import the function:
            it is defined in a notebook, in an interactive session or within another
            function.
        ProcessRaisedException: The function of a process raised an exception.
        ProcessExitedException: A process ended otherwise.

    Example:
        >>> import time
        >>> from distlite import spawn
        >>> spawn.start_processes(time.ctime, nprocs=2)
    """
    if start_method != "fork":
        _check_importable(fn)
    context = multiprocessing.get_context(start_method)
    check_arguments(args, nprocs, "nprocs")
    processes: list[BaseProcess] = []
    errors: list[Connection] = []
    try:
        for index in range(nprocs):
            process, error = _start(context, fn, index, args, daemon)
            processes.append(process)
            errors.append(error)
        started = ProcessContext(processes, errors)
    except BaseException:
        for process in processes:
            process.kill()
            process.join()
        raise
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Calls a function in several new processes, each with a new interpreter.

    The function gets the index of its process, from 0 on, and then `args`.

    Args:
        fn: The function, which other processes can import.
        args: Further arguments of the function, a tuple.
        nprocs: The number of processes.
        join: If True, the call returns when all processes have ended.
        daemon: Whether the processes are daemons, which cannot start processes
            themselves.
        start_method: "spawn"; anything else warns, see `start_processes`.

    Returns:
        None, or a `ProcessContext` if `join` is False.

    Raises:
        AttributeError: Other processes cannot import the function: it is defined in a
            notebook, in an interactive session or within another function.
        ProcessRaisedException: The function of a process raised an exception.
        ProcessExitedException: A process ended otherwise.

    Example:
        >>> import time
        >>> from distlite import spawn
        >>> spawn.spawn(time.ctime, nprocs=1)
    """
    if start_method != "spawn":
        warnings.warn(
            "spawn() always uses the start method 'spawn'; for another one call "
            f"start_processes(..., start_method={start_method!r})",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon, "spawn")


def check_arguments(args: object, count: object, name: str) -> None:
    """Raises TypeError for what would fail in each process, or far from its cause."""
    if not hasattr(args, "__iter__"):
        raise TypeError(f"args must be a tuple, such as ({args!r},), not {args!r}")
    if not hasattr(count, "__index__"):
        raise TypeError(f"{name} must be an integer, not {count!r}")


def _check_importable(fn: object) -> None:
    """Raises AttributeError if a new interpreter could not import the function: the
    error would otherwise be only in the output of each process."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = str(getattr(fn, "__qualname__", type(fn).__qualname__))
    module = str(getattr(fn, "__module__", None))
    main = sys.modules.get("__main__")
    path = str(getattr(main, "__file__", None) or "")  # also "<stdin>"
    is_importable = getattr(main, "__spec__", None) is not None or os.path.exists(path)
    if module == "__main__" and not is_importable:
        raise AttributeError(
            f"Can't get attribute {name!r} on {main}: it is defined in a notebook or "
            "an interactive session, where a new interpreter cannot import it. Call "
            f"distlite.notebook_launcher({name}, args, num_processes), or "
            "start_processes(..., start_method='fork'), or move it into a module."
        )
    if isinstance(fn, types.FunctionType) and "<" in name:
        raise AttributeError(
            f"Can't pickle local object {name!r}: a new interpreter cannot import what "
            "is defined within a function, or a lambda. Define it at the top of a "
            "module, or call start_processes(..., start_method='fork')."
        )


def _start(
    context: BaseContext,
    fn: Callable[..., object],
    index: int,
    args: tuple[Any, ...],
    daemon: bool,
) -> tuple[BaseProcess, Connection]:
    # A file for its traceback: a pipe has room for a short one only, and the reader may
    # first wait for the end of the process.
    with tempfile.TemporaryFile() as file:
        error = Connection(os.dup(file.fileno()))
    words = (fn, index, args, error, os.getpid())
    # Every context has it, but the base class does not declare it.
    process: BaseProcess = context.Process(  # type: ignore[attr-defined]
        target=_run, args=words, daemon=daemon
    )
    call_lastingly(functools.partial(_start_hearing_ends, process))
    return process, error


def _start_hearing_ends(process: BaseProcess) -> None:
    # A fork server learns of the ends of ranks by this signal.  It inherits the mask of
    # the thread that starts it.
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run(
    fn: Callable[..., object],
    index: int,
    args: tuple[Any, ...],
    error: Connection,
    parent: int,
) -> None:
    """Calls the function in the new process."""
    # The parent may have been started with signals blocked.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, NEEDED)
    # If a fork server is the parent, it ends with this program in any case.
    end_with_parent(None, signal.SIGINT)
    if os.getppid() == 1 and parent != 1:
        os.kill(os.getpid(), signal.SIGINT)
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:
        import traceback

        text = traceback.format_exc()
        with open(error.fileno(), "wb", closefd=False) as file:
            file.write(text.encode("utf-8", ANY_TEXT))
        sys.exit(1)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"<Unknown signal {number}>"


class _Module(types.ModuleType):
    """This module, which is called as its function."""

    __call__ = staticmethod(spawn)


sys.modules[__name__].__class__ = _Module
