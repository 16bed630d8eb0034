# SPDX-License-Identifier: BSD-3-Clause
"""One rank's process, which leads a session and a process group of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

from distlite.launch.guardian import Guardian
from distlite.launch.output import Channel, Sink, Tail

# The last line of the traceback of a rank that failed because a peer did.
CONSEQUENCE = re.compile(
    r"(\w+\.)*(DistBackendError|DistNetworkError|DistStoreError|ConnectionResetError"
    r"|ConnectionRefusedError|BrokenPipeError)\b|.*Connection closed by peer"
)
# What is left in a pipe when its writer has ended; more comes from others.
LAST_READS = 64


class Worker:
    """A rank from its start to its end."""

    def __init__(self, rank: int, sinks: tuple[Sink, Sink], owns_terminal: bool):
        self.rank = rank
        self._process: subprocess.Popen[bytes] | None = None
        self.was_told_to_end = False
        self.group_is_empty = True
        self._stderr_tail = tail = Tail()
        self._prefix = prefix = f"[rank{rank}]: "
        stdout, stderr = sinks
        self.channels = [
            Channel(stdout, _prefix_on(stdout, prefix, owns_terminal), None),
            Channel(stderr, _prefix_on(stderr, prefix, owns_terminal), tail),
        ]

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        guardian: Guardian,
        *,
        stdin: int | None,
        listen_fd: int | None,
    ) -> None:
        """Start the process; OSError if there is no such program."""
        stdout, stderr = self.channels
        try:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=stdin,
                stdout=stdout.rank_fd,
                stderr=stderr.rank_fd,
                pass_fds=() if listen_fd is None else (listen_fd,),
                # A session, not only a group: a group in the background of the
                # terminal's session would be stopped when it reads from the terminal.
                start_new_session=True,
                preexec_fn=guardian.in_new_rank(),
            )
            self.group_is_empty = False
        finally:
            stdout.close_rank_end()
            stderr.close_rank_end()

    @property
    def pid(self) -> int:
        """Of a rank that was started; also the id of its process group."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None before its end; negative: the signal that ended it."""
        return None if self._process is None else self._process.returncode

    @property
    def is_running(self) -> bool:
        """Started, and not known to have ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def has_failed(self) -> bool:
        """Ended, not well, and not because the launcher told it to."""
        return self.exit_code not in (None, 0) and not self.was_told_to_end

    def has_just_ended(self) -> bool:
        """True once, at its end; what it wrote before has been passed on then."""
        process = self._process
        if process is None or not self.is_running or process.poll() is None:
            return False
        for channel in self.channels:
            if channel.is_open:
                channel.read(LAST_READS)
        return True

    def last_lines(self) -> list[str]:
        """The end of its stderr, without prefixes."""
        lines = self._stderr_tail.lines()
        return [line.removeprefix(self._prefix) for line in lines]

    def is_consequence(self) -> bool:
        """Whether it says that it failed because a peer was lost."""
        lines = [line for line in self.last_lines() if line.strip()]
        return bool(lines) and CONSEQUENCE.match(lines[-1]) is not None

    def close_channels(self) -> None:
        """Show unfinished last lines; whatever still comes is nobody's."""
        for channel in self.channels:
            channel.close()

    def signal_group(self, number: int) -> None:
        """To the rank and all that it started and that did not leave its group."""
        if self.group_is_empty:
            return
        self.was_told_to_end = self.was_told_to_end or self.is_running
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def check_group(self) -> bool:
        """Whether the group has just become empty.  Call after the rank's end: until
        its group is empty, its id cannot come back as somebody else's."""
        if self.group_is_empty:
            return False
        try:
            # Orphans of this group are our children (the launcher is a subreaper).
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self.pid, os.WNOHANG)[0] != 0:
                    pass
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            self.group_is_empty = True
        except PermissionError:
            pass  # not empty: it changed its user
        return self.group_is_empty


def _prefix_on(sink: Sink, prefix: str, owns_terminal: bool) -> str | None:
    return None if owns_terminal and sink.is_terminal else prefix


def describe_end(exit_code: int) -> str:
    """'exit code 3' or 'killed by SIGSEGV'."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"


def shell_code(exit_code: int) -> int:
    """The exit code by which a shell reports such an end."""
    return 128 - exit_code if exit_code < 0 else exit_code
