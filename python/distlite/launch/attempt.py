# SPDX-License-Identifier: BSD-3-Clause
"""The loop that starts the ranks, passes their output on and ends them together.

One thread polls everything: the ranks' output, the launcher's own stdout and stderr,
reports of other nodes, and a pipe for signals, SIGCHLD among them. An attempt ends when
all ranks have ended; when one has failed, here or elsewhere; or when the launcher is
told to.  Then the ranks get a signal, and after a grace SIGKILL.  Where the others are
to go on, a rank that has failed is started again in the same attempt.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from distlite import _C
from distlite.launch.environment import RELAY, job_environment, rank_environment
from distlite.launch.errors import ERROR_FILE, SETTLING_TIME, LastWords
from distlite.launch.numa import cores_of_rank
from distlite.launch.options import STDERR, STDOUT
from distlite.launch.output import Channel, FileStream, NoSink, Tail
from distlite.launch.signals import named_signals
from distlite.launch.worker import Plan, Stream, Worker, describe_end

if TYPE_CHECKING:
    from distlite.launch.supervisor import Supervisor


# Processes that ended ranks have left behind get SIGTERM after the first span, in which
# they may end by themselves, and SIGKILL after the second.
LEFTOVER_STEPS = ((0, 0.2), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))
# For output of processes that have left the ranks' process groups.
LAST_OUTPUT_TIME = 1.0
GROUP_POLL_TIME = 0.01
LAST_WORDS_POLL_TIME = 0.02
LONGEST_POLL = 86400.0
FILES = {STDOUT: "stdout.log", STDERR: "stderr.log"}
FILTERED = "filtered_{}"  # the lines of all ranks, beside the ranks' folders


class Attempt:
    """The ranks of this node, once from start to end."""

    def __init__(self, job: Supervisor, number: int) -> None:
        self._job = job
        self._options = job.options
        self.number = number
        self.workers: list[Worker] = []
        self.first_failed: Worker | None = None
        self.caught: int | None = None
        self.failure_elsewhere: str | None = None
        self.gives_up = False  # told to end while it was already ending
        self._ending = named_signals(self._options.signals)
        # The times at which the settling window ends, and of the SIGKILL.
        self._end_at = math.inf
        self._kill_at = math.inf
        self._last_words: LastWords | None = None
        self._is_ending = False

    @property
    def was_disturbed(self) -> bool:
        """Returns whether a rank has failed, here or on another node, or a signal ends
        the job."""
        return bool(self.caught or self.first_failed or self.failure_elsewhere)

    def wait_for_peers(self, at_end: bool = False) -> None:
        """Waits until all nodes are ready for this attempt or, with `at_end`, have
        ended it, or until it is disturbed."""
        self._is_ending = self.was_disturbed
        peers = self._job.peers
        while peers is not None and not self.was_disturbed:
            if peers.have_ended(self.number) if at_end else peers.are_ready():
                return
            self._turn()

    def wait_for_verdict(self) -> None:
        """Waits until it is known to all nodes what has ended this attempt."""
        peers = self._job.peers
        while peers is not None and not (self.gives_up or peers.is_over):
            if peers.has_verdict(self.number):
                return
            self._turn()

    def wait_for_others(self) -> None:
        """Waits until all other nodes have ended, or a signal comes."""
        peers = self._job.peers
        while peers is not None and not (self.gives_up or peers.is_over):
            if peers.have_ended(self.number):
                return
            self._turn()

    def run(self) -> None:
        """Starts the ranks and waits for their end; OSError if they cannot be
        started."""
        try:
            self._start_all()
        except OSError:
            self._end(signal.SIGTERM)
            self._see_to_the_end()
            raise
        self._see_to_the_end()

    def _start_all(self) -> None:
        answers = []
        for local_rank in range(self._options.nproc_per_node):
            worker, plan = self._prepare(local_rank, self.number)
            self.workers.append(worker)
            answers.append(worker.start(plan))
        program = self._options.command[0]
        errors = []
        for answer in answers:
            try:
                Worker.check_start(answer, program)
            except OSError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def _start_again(self, failed: Worker) -> bool:
        """Starts a rank in place of one that has failed, if that is allowed."""
        may = self._options.goes_on and not self._is_ending and not self.first_failed
        left = self._options.max_restarts - failed.restart - 1
        if not may or left < 0:
            return False
        # What the failed process has started does not go on beside its successor.
        failed.signal_group(signal.SIGKILL)
        end = describe_end(failed.exit_code or 0)
        self._job.say(
            f"distlite: rank {failed.rank}: {end}; started again, while the others go "
            f"on; {left} restart(s) of it left"
        )
        try:
            worker, plan = self._prepare(failed.local_rank, failed.restart + 1)
            self.workers.append(worker)
            answer = worker.start(plan)
            Worker.check_start(answer, self._options.command[0])
        except OSError as error:
            self._job.say(f"distlite: rank {failed.rank}: {error.strerror or error}")
            return False
        failed.is_replaced = True
        return True

    def _forget_replaced(self) -> None:
        """Forgets processes that have successors, once nothing is left of them."""
        for worker in [w for w in self.workers if w.is_replaced]:
            if worker.group_is_empty and not any(c.is_open for c in worker.channels):
                worker.close_channels()
                self.workers.remove(worker)

    def _prepare(self, local_rank: int, restart: int) -> tuple[Worker, Plan]:
        options, plan = self._options, Plan()
        job = job_environment(options, self._job.place, restart)
        if self._job.relay is not None:
            job[RELAY] = self._job.relay.address
        rank = self._job.place.first_rank + local_rank
        plan.environment = environment = rank_environment(
            job, options, self._job.place, local_rank
        )
        plan.command = options.command
        # Several readers of a file or pipe would each get a part of it.  At a terminal
        # all ranks may read, because a debugger can be in any of them.
        plan.shares_stdin = local_rank == 0 or os.isatty(0)
        if options.numa_binding:
            plan.cores = cores_of_rank(
                options.numa_binding, local_rank, options.nproc_per_node
            )
        folder, error_file = None, None
        if self._job.folder is not None:
            # Laid out as torchrun's, with stdout.log, stderr.log and error.json.
            folder = f"{self._job.folder}/attempt_{restart}/{local_rank}"
            os.makedirs(folder, exist_ok=True)
            error_file = environment[ERROR_FILE] = f"{folder}/error.json"
        stdout = self._stream(rank, local_rank, STDOUT, folder)
        stderr = self._stream(rank, local_rank, STDERR, folder)
        streams = (stdout, stderr)
        return Worker(rank, local_rank, restart, streams, error_file), plan

    def _stream(
        self, rank: int, local_rank: int, which: int, folder: str | None
    ) -> Stream:
        options = self._options
        if options.is_redirected(local_rank, which):
            return FileStream(f"{folder}/{FILES[which]}")
        sink = self._job.sinks[which - 1]
        if options.shown_ranks is not None and local_rank not in options.shown_ranks:
            sink = NoSink()
        file = (
            f"{folder}/{FILES[which]}" if options.is_teed(local_rank, which) else None
        )
        prefix = None
        if local_rank != 0 or not sink.is_terminal:
            prefix = self._job.prefix(rank, local_rank)
        channel = Channel(sink, prefix, Tail() if which == STDERR else None, file)
        if words := options.filters[which - 1]:
            path = f"{os.path.dirname(folder or '')}/{FILTERED.format(FILES[which])}"
            channel.filter_lines(path, self._job.prefix(rank, local_rank), words)
        return channel

    def _see_to_the_end(self) -> None:
        while any(worker.is_running for worker in self.workers):
            self._turn()
        self._end_leftovers()
        limit = time.monotonic() + LAST_OUTPUT_TIME
        while any(self._open_channels()) and time.monotonic() < limit:
            self._turn(limit)
        for worker in self.workers:
            worker.close_channels()
        _C._recordings_sweep()

    def finish_output(self) -> None:
        """Writes the output that is still pending."""
        # A job that was told to end does not wait for a reader that may not read any
        # more.
        was_told = self.caught is not None
        limit = time.monotonic() + LAST_OUTPUT_TIME if was_told else math.inf
        while any(s.has_pending for s in self._job.sinks) and time.monotonic() < limit:
            self._turn(limit)

    def _turn(self, until: float = math.inf) -> None:
        """Waits for an event, no longer than `until`, and handles it."""
        until = min(until, self._end_at, self._kill_at)
        ready = self._poll(until)
        for number in self._job.signals.take():
            self._on_signal(number)
        # Before reading, so that the output of a failed rank comes before what the
        # others write because of the failure.
        self._check_ranks()
        self._check_peers()
        for channel in self._open_channels():
            if channel.fd in ready:
                channel.read()
        for sink in self._job.sinks:
            sink.flush_ready()
            if sink.is_broken and not self._is_ending:
                self.caught = signal.SIGPIPE
                if sink.problem:
                    self._job.say(
                        f"distlite: cannot write output: {sink.problem}: ending all "
                        "ranks"
                    )
                self._end(signal.SIGTERM)
        self._keep_time()

    def _poll(self, until: float) -> set[int]:
        poll = select.poll()
        poll.register(self._job.signals.fd, select.POLLIN)
        if self._job.peers is not None:
            poll.register(self._job.peers.fd, select.POLLIN)
        for channel in self._open_channels():
            if not channel.sink.is_full:
                poll.register(channel.fd, select.POLLIN)
        for sink in self._job.sinks:
            if sink.has_pending:
                poll.register(sink.fd, select.POLLOUT)
        span = max(0.0, until - time.monotonic())
        # poll takes at most 24 days; returning early does no harm.
        span = min(span, LONGEST_POLL)
        events = poll.poll(math.ceil(span * 1000))
        return {fd for fd, _ in events}

    def _open_channels(self) -> Iterator[Channel]:
        for worker in self.workers:
            yield from (channel for channel in worker.channels if channel.is_open)

    def _check_ranks(self) -> None:
        ended = self._reap()
        self._forget_replaced()
        failed = [worker for worker in ended if worker.has_failed]
        failed = [worker for worker in failed if not self._start_again(worker)]
        if not failed or self._is_ending:
            return
        # Of ranks that ended between two polls, and of a rank that failed because of
        # another and that other one, prefer the one that looks like the cause.
        known = [] if self.first_failed is None else [self.first_failed]
        self.first_failed = min(known + failed, key=Worker.is_consequence)
        if not self.first_failed.is_consequence():
            self._end_at = -math.inf
            self._last_words = self._last_words or LastWords(
                worker.pid for worker in self.workers
            )
        elif self._end_at == math.inf:
            self._end_at = time.monotonic() + SETTLING_TIME

    def _reap(self) -> list[Worker]:
        """Returns the ranks that have ended since the last call.

        It takes the ends of all children: the launcher is a subreaper, and so also the
        parent of what ranks have left behind, which would stay in the process table."""
        by_pid = {worker.pid: worker for worker in self.workers if worker.is_running}
        ended, any_ended = [], False
        for pid, status in _ends_of(self._children()):
            any_ended = True
            if pid in by_pid:
                by_pid[pid].end(status)
                ended.append(by_pid[pid])
        if any_ended:
            self._forget_empty_groups()
        return ended

    def _children(self) -> Iterator[int]:
        """Yields arguments of waitpid(): any child or, in a program that may have other
        children, the processes and groups of this job."""
        if self._job.owns_process:
            yield -1
            return
        for worker in self.workers:
            if worker.is_running:
                yield worker.pid
            if not worker.group_is_empty:
                yield -worker.pid

    def _check_peers(self) -> None:
        if self._job.peers is None:
            return
        failure = self._job.peers.take_failure(self.number)
        if failure is None or self._is_ending:
            return
        self.failure_elsewhere = failure
        self._end(signal.SIGTERM)

    def _keep_time(self) -> None:
        now = time.monotonic()
        if now >= self._end_at:
            if self._last_words is not None and self._last_words.are_pending():
                self._end_at = now + LAST_WORDS_POLL_TIME
            else:
                self._end(signal.SIGTERM)
        if now >= self._kill_at:
            self._kill()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGWINCH:
            for channel in self._open_channels():
                channel.resize()
        elif number in self._ending and not self._is_ending:
            self.caught = number
            self._job.say(
                f"distlite: {signal.Signals(number).name}: ending all ranks, "
                f"with SIGKILL in {self._options.grace:g} s (or at the next Ctrl-C)"
            )
            self._end(number)
        elif number in self._ending:
            self.gives_up = True
            if number == signal.SIGINT:
                self._kill()
                # Nothing waits for the rest, and a reader that is stuck must not delay
                # the end.
                for sink in self._job.sinks:
                    sink.abandon()

    def _end(self, number: int) -> None:
        self._is_ending = True
        if self.caught is not None:
            # At once, lest the others take what their ranks say for the cause.
            text = "its launcher was stopped by a signal"
            self._job.tell_peers(self, text, leaves=True)
        self._end_at = math.inf
        self._kill_at = time.monotonic() + self._options.grace
        for worker in self.workers:
            worker.signal_group(number)

    def _kill(self) -> None:
        self._kill_at = math.inf
        for worker in self.workers:
            worker.signal_group(signal.SIGKILL)

    def _end_leftovers(self) -> None:
        """Ends the processes that the ranks started and left behind in their process
        groups."""
        self._is_ending = True
        for number, span in LEFTOVER_STEPS:
            limit = time.monotonic() + min(self._options.grace, span)
            if not self._forget_empty_groups():
                return
            for worker in self.workers:
                worker.signal_group(number)
            while self._forget_empty_groups() and time.monotonic() < limit:
                self._turn(time.monotonic() + GROUP_POLL_TIME)

    def _forget_empty_groups(self) -> bool:
        for worker in self.workers:
            worker.check_group()
        return not all(worker.group_is_empty for worker in self.workers)


def _ends_of(children: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the pid and the wait status of each process that has ended."""
    for which in children:
        with contextlib.suppress(ChildProcessError):
            while (end := os.waitpid(which, os.WNOHANG))[0] != 0:
                yield end
