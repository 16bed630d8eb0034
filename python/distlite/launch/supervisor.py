# SPDX-License-Identifier: BSD-3-Clause
"""The loop that starts the ranks, passes their output on and ends them together.

One thread polls everything: the ranks' output, the launcher's own stdout and stderr,
and a pipe that signals arrive on, the end of a child among them.  The job ends when all
ranks have ended; when one has failed; or when the launcher is told to.  In the last two
cases the ranks get a signal, and after a grace SIGKILL.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator

from distlite.launch.environment import job_environment, rank_environment
from distlite.launch.guardian import Guardian
from distlite.launch.master import bind_master
from distlite.launch.options import Options
from distlite.launch.output import Channel, own_sinks
from distlite.launch.report import failure_report
from distlite.launch.signals import ENDING, SignalPipe
from distlite.launch.worker import Worker, shell_code

GRACE_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
DEFAULT_GRACE = 30.0  # torchrun's
# A rank that failed because a peer did can be gone before that peer is: how long to
# look for the cause before the rest of the job is ended.
SETTLING_TIME = 1.0
# What ended ranks have left behind is let be for the first span, for it may be about to
# end by itself; then it gets SIGTERM and, after the second, SIGKILL.
LEFTOVER_STEPS = ((0, 0.2), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))
# For output still coming from somebody who left the ranks' process groups.
LAST_OUTPUT_TIME = 1.0
GROUP_POLL_TIME = 0.01
PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """One run of one job on this node."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._workers: list[Worker] = []
        self._first_failed: Worker | None = None
        self._caught: int | None = None
        self._grace = _grace()
        # Times: of the end of the settling window, and of the SIGKILL.
        self._end_at = math.inf
        self._kill_at = math.inf
        self._is_ending = False

    def run(self) -> int:
        """Run the job; return the launcher's exit code."""
        _open_standard_streams()
        self._guardian = Guardian()
        # What the ranks leave behind becomes ours, so that we can see it end.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._sinks = own_sinks()
        try:
            with SignalPipe() as self._signals:
                return self._run_job()
        finally:
            self._guardian.close()

    def _run_job(self) -> int:
        try:
            self._start_all()
        except OSError as error:
            self._say(f"distlite: {error}")
            self._end(signal.SIGTERM)
            self._see_to_the_end()
            return 1
        self._see_to_the_end()
        return self._exit_code()

    def _start_all(self) -> None:
        with contextlib.ExitStack() as stack:
            listen_fd, port = None, self._options.master_port
            if self._options.nnodes == 1:
                master = bind_master(self._options.master_addr, port)
                stack.enter_context(contextlib.closing(master))
                listen_fd, port = master.fileno(), master.getsockname()[1]
            job = job_environment(self._options, port)
            for local_rank in range(self._options.nproc_per_node):
                fd = listen_fd if self._options.rank(local_rank) == 0 else None
                environment = rank_environment(job, self._options, local_rank, fd)
                self._start(local_rank, environment, fd)

    def _start(
        self, local_rank: int, environment: dict[str, str], listen_fd: int | None
    ) -> None:
        is_first = local_rank == 0
        worker = Worker(self._options.rank(local_rank), self._sinks, is_first)
        self._workers.append(worker)
        # Of a file or pipe, several readers would each get a part.  At a terminal
        # everybody may read: a debugger can be in any rank.
        shares_stdin = is_first or os.isatty(0)
        worker.start(
            self._options.command,
            environment,
            self._guardian,
            stdin=None if shares_stdin else subprocess.DEVNULL,
            listen_fd=listen_fd,
        )

    def _see_to_the_end(self) -> None:
        while any(worker.is_running for worker in self._workers):
            self._turn()
        self._end_leftovers()
        limit = time.monotonic() + LAST_OUTPUT_TIME
        while any(self._open_channels()) and time.monotonic() < limit:
            self._turn(limit)
        for worker in self._workers:
            worker.close_channels()
        if self._first_failed is not None and self._caught is None:
            self._say(failure_report(self._first_failed, self._workers))
        self._finish_output()

    def _finish_output(self) -> None:
        # A job that was told to end does not wait for a reader that may be stuck.
        was_told = self._caught is not None
        limit = time.monotonic() + LAST_OUTPUT_TIME if was_told else math.inf
        while any(s.has_pending for s in self._sinks) and time.monotonic() < limit:
            self._turn(limit)

    def _turn(self, until: float = math.inf) -> None:
        """Wait for something to do, no longer than `until`, and do it."""
        until = min(until, self._end_at, self._kill_at)
        ready = self._poll(until)
        for number in self._signals.take():
            self._on_signal(number)
        # Before reading: what a failed rank wrote comes before what its failure made
        # the others write.
        self._look_for_ends()
        for channel in self._open_channels():
            if channel.fd in ready:
                channel.read()
        for sink in self._sinks:
            sink.flush_ready()
            if sink.is_broken and not self._is_ending:
                self._caught = signal.SIGPIPE
                self._end(signal.SIGTERM)
        self._keep_time()

    def _poll(self, until: float) -> set[int]:
        poll = select.poll()
        poll.register(self._signals.fd, select.POLLIN)
        for channel in self._open_channels():
            if not channel.sink.is_full:
                poll.register(channel.fd, select.POLLIN)
        for sink in self._sinks:
            if sink.has_pending:
                poll.register(sink.fd, select.POLLOUT)
        span = max(0.0, until - time.monotonic())
        events = poll.poll(None if span == math.inf else math.ceil(span * 1000))
        return {fd for fd, _ in events}

    def _open_channels(self) -> Iterator[Channel]:
        for worker in self._workers:
            yield from (channel for channel in worker.channels if channel.is_open)

    def _look_for_ends(self) -> None:
        ended = [worker for worker in self._workers if worker.has_just_ended()]
        failed = [worker for worker in ended if worker.has_failed]
        if not failed or self._is_ending:
            return
        # Of those that ended between two looks, and of a rank that only followed and
        # the one that comes to light after it, prefer what looks like the cause.
        known = [] if self._first_failed is None else [self._first_failed]
        self._first_failed = min(known + failed, key=Worker.is_consequence)
        if not self._first_failed.is_consequence():
            self._end_at = -math.inf
        elif self._end_at == math.inf:
            self._end_at = time.monotonic() + SETTLING_TIME

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now >= self._end_at:
            self._end(signal.SIGTERM)
        if now >= self._kill_at:
            self._kill()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGWINCH:
            for channel in self._open_channels():
                channel.resize()
        elif number in ENDING and not self._is_ending:
            self._caught = number
            self._say(
                f"distlite: {signal.Signals(number).name}: ending all ranks, "
                f"with SIGKILL in {self._grace:g} s (or at the next Ctrl-C)"
            )
            self._end(number)
        elif number == signal.SIGINT:
            self._kill()
            # Nobody waits for the rest, and a stuck reader must not keep us.
            for sink in self._sinks:
                sink.abandon()

    def _end(self, number: int) -> None:
        self._is_ending = True
        self._end_at = math.inf
        self._kill_at = time.monotonic() + self._grace
        for worker in self._workers:
            worker.signal_group(number)

    def _kill(self) -> None:
        self._kill_at = math.inf
        for worker in self._workers:
            worker.signal_group(signal.SIGKILL)

    def _end_leftovers(self) -> None:
        """End what the ranks started and left behind in their process groups."""
        self._is_ending = True
        for number, span in LEFTOVER_STEPS:
            limit = time.monotonic() + min(self._grace, span)
            if not self._forget_empty_groups():
                return
            for worker in self._workers:
                worker.signal_group(number)
            while self._forget_empty_groups() and time.monotonic() < limit:
                self._turn(time.monotonic() + GROUP_POLL_TIME)

    def _forget_empty_groups(self) -> bool:
        for worker in self._workers:
            if worker.check_group():
                self._guardian.forget(worker.pid)
        return not all(worker.group_is_empty for worker in self._workers)

    def _say(self, text: str) -> None:
        sink = self._sinks[1]
        sink.finish_line()
        sink.write_lines(text.rstrip("\n").encode() + b"\n")

    def _exit_code(self) -> int:
        if self._caught is not None:
            return 128 + self._caught
        if self._first_failed is not None:
            return shell_code(self._first_failed.exit_code or 0)
        return 0


def _grace() -> float:
    try:
        return float(os.environ.get(GRACE_VARIABLE, ""))
    except ValueError:
        return DEFAULT_GRACE


def _open_standard_streams() -> None:
    # Started with one of them closed, a pipe of ours could take its place.
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
