# SPDX-License-Identifier: BSD-3-Clause
"""One rank's process, which leads a process group of its own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
from collections.abc import Mapping, Sequence
from typing import NoReturn

from distlite.launch.errors import is_consequence, read_error
from distlite.launch.output import TAIL_SIZE, Channel, FileStream, tail_lines
from distlite.launch.rank_process import ENDING, end_with_parent, fork

Stream = Channel | FileStream

# Pieces that are read after a rank's end: more than a pipe holds comes from others.
LAST_READS = 64
# Python ignores this signal, which ends other programs.
DEFAULT_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ)


class Plan:
    """How a rank's process is to start."""

    command: Sequence[str] = ()
    environment: Mapping[str, str]
    shares_stdin = False
    cores: set[int] | None = None


class Worker:
    """A rank from its start to its end."""

    def __init__(
        self,
        rank: int,
        local_rank: int,
        restart: int,
        streams: tuple[Stream, Stream],
        error_file: str | None,
    ) -> None:
        self.rank, self.local_rank = rank, local_rank
        self.restart = restart  # how often the rank was started before
        self.pid = 0  # and the id of its process group
        # None before its end; negative if a signal ended it.
        self.exit_code: int | None = None
        self.was_told_to_end = False
        self.is_replaced = False  # another process is this rank now
        self.group_is_empty = True
        self.error_file = error_file
        self._streams = streams
        self.channels = [s for s in streams if isinstance(s, Channel)]

    def start(self, plan: Plan) -> int:
        """Starts the process; the result is an argument of `check_start`."""
        launcher = os.getpid()
        read_end, write_end = os.pipe()
        # A signal to the child would be lost before it has its own handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            self.pid = fork()
            if self.pid == 0:
                fds = [stream.rank_fd for stream in self._streams]
                _become(plan, fds, launcher, write_end)
            self.group_is_empty = False
        except OSError:
            os.close(read_end)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            os.close(write_end)
            for stream in self._streams:
                stream.close_rank_end()
        return read_end

    @staticmethod
    def check_start(answer: int, program: str) -> None:
        """Waits until the process runs the program; raises OSError that says why it
        cannot."""
        text = os.read(answer, 16)
        os.close(answer)
        if text:
            raise OSError(int(text), f"{os.strerror(int(text))}: {program!r}")

    @property
    def is_running(self) -> bool:
        """Returns whether the rank has started and is not known to have ended."""
        return self.pid != 0 and self.exit_code is None

    @property
    def has_failed(self) -> bool:
        """Returns whether the rank has failed, and not because the launcher ended
        it."""
        return self.exit_code not in (None, 0) and not self.was_told_to_end

    def end(self, status: int) -> None:
        """Takes the rank's end, by its wait status, and passes its output on."""
        self.exit_code = os.waitstatus_to_exitcode(status)
        for channel in self.channels:
            if channel.is_open:
                channel.read(LAST_READS)

    def last_lines(self) -> list[str]:
        """Returns the error that the rank recorded, or the end of its stderr."""
        if lines := read_error(self.error_file):
            return lines
        stderr = self._streams[1]
        if isinstance(stderr, FileStream):
            lines = tail_lines(_last_bytes(stderr.path, TAIL_SIZE + 1), TAIL_SIZE)
        elif stderr.tail is not None:
            lines = stderr.tail.lines()
        prefix = f"[rank{self.rank}]: "  # the library's own
        return [line.removeprefix(prefix) for line in lines]

    def is_consequence(self) -> bool:
        """Returns whether the rank says that it failed because a peer was lost."""
        return is_consequence(self.last_lines())

    def close_channels(self) -> None:
        """Writes unfinished last lines; output that still comes is not shown."""
        for channel in self.channels:
            channel.close()

    def signal_group(self, number: int) -> None:
        """Sends a signal to the rank and to the processes of its process group."""
        if self.group_is_empty:
            return
        self.was_told_to_end = self.was_told_to_end or self.is_running
        # A rank may have left a process of another user, which ends when it likes.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def check_group(self) -> None:
        """Finds out whether the group has become empty.

        It is called after the end of the rank or of another process: until the group is
        empty, no other process can get its id."""
        if self.group_is_empty or self.is_running:
            return
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            self.group_is_empty = True
        except PermissionError:
            pass  # not empty: its process runs as another user


def _become(plan: Plan, fds: Sequence[int], launcher: int, failure: int) -> NoReturn:
    """Does everything between fork and exec, in the new process."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (*signal.valid_signals(),):
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        # It gets no session of its own: Linux divides processor time by session
        # (autogroups), and ranks in different sessions could not yield a core to each
        # other.
        os.setpgid(0, 0)
        _leave_terminal()
        end_with_parent(launcher)
        for number in DEFAULT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        if plan.cores is not None:
            os.sched_setaffinity(0, plan.cores)
        if not plan.shares_stdin:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(fds[0], 1)
        os.dup2(fds[1], 2)
        os.execvpe(plan.command[0], list(plan.command), dict(plan.environment))
    except OSError as error:
        os.write(failure, str(error.errno).encode())
    finally:
        os._exit(127)


def _last_bytes(path: str, size: int) -> bytes:
    """Returns the last bytes of a file; none if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read()
    except OSError:
        return b""


def _leave_terminal() -> None:
    """Gives up the controlling terminal, as starting a session would: a background
    group of a terminal's session is stopped when it reads from the terminal."""
    with contextlib.suppress(OSError):  # there is none
        terminal = os.open("/dev/tty", os.O_RDWR)
        fcntl.ioctl(terminal, termios.TIOCNOTTY)
        os.close(terminal)


def describe_end(exit_code: int) -> str:
    """Returns 'exit code 3' or 'killed by SIGSEGV'."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


def shell_code(exit_code: int) -> int:
    """Returns the exit code by which a shell reports such an end."""
    return 128 - exit_code if exit_code < 0 else exit_code
