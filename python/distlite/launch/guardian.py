# SPDX-License-Identifier: BSD-3-Clause
"""A small process that outlives the launcher, to end the ranks if it is killed.

A launcher cannot react to SIGKILL. Its ranks die with it by PR_SET_PDEATHSIG, but the
processes that they have started do not. So the launcher first forks this process, which
waits on a pipe that only the launcher holds open: each rank announces its process group
on it before its program starts, and the launcher withdraws the group when it is empty.
At the end of the pipe every group that is still announced gets SIGKILL, and the files
that are left are removed. A guardian that has been killed is replaced.
"""

from __future__ import annotations

import contextlib
import os
import signal
from typing import NoReturn

from distlite.launch.rank_process import ENDING, end_with_parent, fork

MESSAGE_SIZE = 32  # a sign, a process id, padding: one atomic write to the pipe


class Guardian:
    """The launcher's end of the pipe.  Make it before any other thread or process is
    started."""

    def __init__(self, scratch: str | None = None) -> None:
        """Starts the process; `scratch` is a folder to remove at the end."""
        self._scratch = scratch
        self._launcher = os.getpid()
        self._groups: set[int] = set()
        try:
            self._start()
        except OSError:
            os.close(self._write_end)
            raise

    def _start(self) -> None:
        read_end, self._write_end = os.pipe()
        try:
            self.pid = fork()
        except OSError:
            # The other end is the object's: close() closes it.
            os.close(read_end)
            raise
        if self.pid == 0:
            signal.set_wakeup_fd(-1)
            # The groups that were announced to an earlier one: it knows them from its
            # first moment, because the launcher may be killed at any.
            _watch(read_end, self._scratch, self._groups)
        os.close(read_end)

    def replace(self) -> None:
        """Starts another one in place of one that has been killed."""
        os.close(self._write_end)
        self._start()

    def announce(self) -> None:
        """Announces the group of the calling process, which a rank's process leads
        before exec."""
        end_with_parent(self._launcher)
        self._send("+", os.getpid())

    def remember(self, group: int) -> None:
        """Records a group that its rank has announced or will announce."""
        self._groups.add(group)

    def forget(self, group: int) -> None:
        """Withdraws a group that is empty."""
        self._groups.discard(group)
        self._send("-", group)

    def _send(self, sign: str, group: int) -> None:
        # The job must go on if the guardian has been killed.
        with contextlib.suppress(OSError):
            os.write(self._write_end, f"{sign}{group}".ljust(MESSAGE_SIZE).encode())

    def close(self) -> None:
        """Kills the groups that have not been withdrawn; returns when that is done."""
        os.close(self._write_end)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def _watch(read_end: int, scratch: str | None, groups: set[int]) -> NoReturn:
    try:
        read_end = _detach(read_end)
        while message := _receive(read_end):
            change = groups.add if message[:1] == b"+" else groups.discard
            change(int(message[1:]))
    finally:
        for group in groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        if scratch is not None:
            _remove_folder(scratch)
        os._exit(0)


def _detach(read_end: int) -> int:
    # Without the terminal's signals and the launcher's descriptors: one that stayed
    # open here would hide the launcher's end from the readers of its output.
    os.setsid()
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(read_end, 3)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(4, os.sysconf("SC_OPEN_MAX"))
    return 3


def _receive(read_end: int) -> bytes:
    message = b""
    while len(message) < MESSAGE_SIZE:
        piece = os.read(read_end, MESSAGE_SIZE - len(message))
        if not piece:
            return b""
        message += piece
    return message


def _remove_folder(path: str) -> None:
    """Removes a folder and its contents, as far as that is possible."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(path)):
            if entry.is_dir(follow_symlinks=False):
                _remove_folder(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)
