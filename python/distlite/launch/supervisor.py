# SPDX-License-Identifier: BSD-3-Clause
"""One run of a job on this node: attempts, until one succeeds or none is left.

It owns what outlives an attempt: the signals, the launcher's own output, the store by
which the ranks find each other, and the connection to the launchers of other nodes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from distlite._C import DistError, TCPStore
from distlite.launch.attempt import Attempt
from distlite.launch.environment import STANDBY, Place, may_relay
from distlite.launch.nodes import Nodes
from distlite.launch.options import DEFAULT_ADDRESS, Options
from distlite.launch.output import own_sinks
from distlite.launch.rank_process import subreaper
from distlite.launch.signals import SignalPipe, named_signals
from distlite.launch.worker import Worker, describe_end, shell_code

if TYPE_CHECKING:
    from distlite.stores.relay import StoreRelay

WIDTH = 78
TRACEBACK = "Traceback (most recent call last)"
CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
# Last lines that are shown of a rank that wrote no traceback.
LAST_LINES = 20
PREFIX_VARIABLE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"


class Supervisor:
    """The job on this node."""

    def __init__(self, options: Options, owns_process: bool = False) -> None:
        """`owns_process` says that all children of this process are the job's."""
        self.options = options
        self.owns_process = owns_process
        self.peers: Nodes | None = None
        self.folder: str | None = None
        self._store: TCPStore | None = None
        self.relay: StoreRelay | None = None
        self._open = contextlib.ExitStack()

    def run(self) -> int:
        """Runs the job; returns the launcher's exit code."""
        _open_standard_streams()
        self.sinks = own_sinks()
        try:
            self.folder = _make_folder(self.options)
        except OSError as error:
            return self._refuse(error)
        ending = named_signals(self.options.signals)
        try:
            with subreaper(), self._open, SignalPipe(ending) as self.signals:
                return self._run_job()
        finally:
            if self.folder is not None and not self.options.keeps_files:
                import shutil

                shutil.rmtree(self.folder, ignore_errors=True)

    def _run_job(self) -> int:
        try:
            self._meet()
        except OSError as error:
            return self._refuse(error)
        if self.options.keeps_files:
            self.say(f"distlite: files of the ranks' output: {self.folder}")
        attempt = Attempt(self, 0)
        code = self._try(attempt)
        while self._may_try_again(attempt):
            attempt = Attempt(self, attempt.number + 1)
            code = self._try(attempt)
        attempt.finish_output()
        return code

    def _meet(self) -> None:
        """Makes the store, or finds it and the other nodes."""
        options = self.options
        if options.second is not None:
            # For the stores of this process and of its ranks.
            second, first = (
                f"{host}:{port}"
                for host, port in (options.second, (options.address, options.port))
            )
            os.environ[STANDBY] = f"{second}@{first}"
            self._open.callback(os.environ.pop, STANDBY, None)
        if options.is_open and options.goes_on:
            from distlite.launch.open_nodes import OpenNodes

            self.peers = self._open.enter_context(OpenNodes(options))
            return
        if options.is_open:
            from distlite.launch.rounds import Rounds

            self.peers = self._open.enter_context(Rounds(options))
            return
        if options.has_peers:
            from distlite.launch.nodes import Nodes

            self.peers = self._open.enter_context(Nodes(options))
            return
        self._store = _serve(options)
        self.place = Place(options.run_id, self._store.port, [options.nproc_per_node])

    def _try(self, attempt: Attempt) -> int:
        """Makes one attempt; returns the exit code if it is the last one."""
        if self.peers is not None:
            self.peers.begin(attempt.number)
            attempt.wait_for_peers()
            if self.peers.place is not None and not attempt.was_disturbed:
                attempt.number, self.place = self.peers.attempt, self.peers.place
                self._start_relay(self.peers)
            if self.peers.was_spare:
                return 0
        if not attempt.was_disturbed:
            try:
                attempt.run()
            except OSError as error:
                self.tell_peers(attempt, _without_number(error), leaves=True)
                attempt.gives_up = True
                return self._refuse(error)
        if self.peers is not None and not attempt.was_disturbed:
            self.peers.end(attempt.number)
            attempt.wait_for_peers(at_end=True)
        code = self._conclude(attempt)
        has_failed = attempt.first_failed is not None and attempt.caught is None
        if self.options.is_open and self.options.goes_on and has_failed:
            self._serve_others(attempt)
        return code

    def _serve_others(self, attempt: Attempt) -> None:
        """Serves the store to other nodes, which go on, until they end."""
        assert self.peers is not None
        self.peers.end(attempt.number)
        if not self.peers.have_ended(attempt.number):
            self.say("distlite: the store of this node serves the others to their end")
            attempt.wait_for_others()

    def _start_relay(self, peers: Nodes) -> None:
        """Starts the relay by which this node's ranks use the store of another node.

        Without one they connect directly, as a single rank does in any case. It runs in
        a thread of the core, which waits for nothing here, and goes with the ranks."""
        is_wanted = self.options.nproc_per_node > 1 and not peers.serves_store
        if not is_wanted or self.relay is not None or not may_relay(os.environ):
            return
        from distlite.stores.relay import store_relay

        options = self.options
        with contextlib.suppress(DistError, ValueError):
            self.relay = self._open.enter_context(
                store_relay(
                    options.address,
                    self.place.port,
                    token=options.token,
                    tls=options.tls,
                )
            )

    def _conclude(self, attempt: Attempt) -> int:
        """Reports how the attempt ended, here and to the other nodes."""
        if attempt.caught is not None:
            return 128 + attempt.caught
        if attempt.failure_elsewhere is not None:
            self.say(f"distlite: {attempt.failure_elsewhere}")
            return 1
        if attempt.first_failed is None:
            return 0
        self.tell_peers(attempt, _failure_title(attempt.first_failed))
        self.say(_failure_report(attempt.first_failed, attempt.workers))
        return shell_code(attempt.first_failed.exit_code or 0)

    def _may_try_again(self, attempt: Attempt) -> bool:
        is_last = not attempt.was_disturbed or attempt.caught or attempt.gives_up
        if is_last or self.options.goes_on:
            return False
        left = self.options.max_restarts - 1 - attempt.number
        if self.peers is not None:
            attempt.wait_for_verdict()
            self._say_cause(attempt, self.peers.take_failure(attempt.number))
            if self.peers.is_over or attempt.gives_up:
                return False
            left = self.peers.restarts_left(attempt.number)
        if left >= 0:
            text = f"restarting all ranks; {left} restart(s) left after this one"
            self.say(f"distlite: {text}")
        return left >= 0

    def _say_cause(self, attempt: Attempt, cause: str | None) -> None:
        """Says what has ended an attempt on all nodes, unless it was said."""
        said = attempt.failure_elsewhere
        if attempt.first_failed is not None:
            said = _failure_title(attempt.first_failed)
        if cause is not None and (said is None or said not in cause):
            self.say(f"distlite: {cause}")

    def tell_peers(self, attempt: Attempt, text: str, leaves: bool = False) -> None:
        """Tells the other nodes of a failure of this one, or that it `leaves`."""
        if self.peers is not None:
            self.peers.fail(attempt.number, text, leaves)

    def _refuse(self, error: OSError) -> int:
        self.say(f"distlite: {_without_number(error)}")
        for sink in self.sinks:
            sink.flush()
        return 1

    def say(self, text: str) -> None:
        """Prints lines of the launcher itself on stderr."""
        sink = self.sinks[1]
        sink.finish_line()
        # Names of files and texts of exceptions may have surrogates, which UTF-8 does
        # not allow.
        sink.write_lines(text.rstrip("\n").encode(errors="backslashreplace") + b"\n")

    def prefix(self, rank: int, local_rank: int) -> str:
        """Returns the prefix of the lines of a rank's output."""
        template = os.environ.get(PREFIX_VARIABLE)
        if template is None:
            return f"[rank{rank}]: "
        values = {
            "role_name": self.options.role,
            "rank": str(rank),
            "local_rank": str(local_rank),
        }
        for name, value in values.items():
            template = template.replace(f"${{{name}}}", value)
        return template


def _without_number(error: OSError) -> str:
    # The number of the error means nothing to a user, unlike the name of a file.
    text = error.strerror or str(error)
    return text if error.filename is None else f"{text}: {error.filename!r}"


def _serve(options: Options) -> TCPStore:
    if options.address != DEFAULT_ADDRESS:
        from distlite.launch.master import check_address

        # With another host's address, the store would try for minutes to reach itself
        # there.
        check_address(options.address, options.port)
    try:
        return TCPStore(
            options.address,
            options.port,
            is_master=True,
            wait_for_workers=False,
            token=options.token,
            tls=options.tls,
        )
    except ValueError as error:  # a malformed token or certificate
        raise OSError(str(error)) from None
    except DistError as error:
        where = f"{options.address}:{options.port}"
        raise OSError(f"cannot listen on {where}: {error}") from None


def _make_folder(options: Options) -> str | None:
    """Makes the folder of the job on this node and returns its path; None if it cannot
    be made and no files were asked for.

    Unless files were asked for, it lies among the temporary ones and goes with the job.
    """
    parent = options.log_dir or os.environ.get("TMPDIR") or "/tmp"
    name = options.run_id.replace("/", "_")
    path = f"{os.path.abspath(parent)}/{name}_{os.urandom(4).hex()}"
    if options.log_dir is None:
        path = f"{os.path.abspath(parent)}/distlite_{os.urandom(8).hex()}"
    try:
        os.makedirs(path, mode=0o777 if options.log_dir else 0o700)
    except OSError as error:
        if options.keeps_files:
            reason = f"cannot make the folder {path}: {error.strerror}"
            raise OSError(error.errno, reason) from None
        return None
    return path


def _open_standard_streams() -> None:
    # If one of them is closed at the start, a pipe of the launcher could take its
    # place.
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _failure_report(first: Worker, workers: Sequence[Worker]) -> str:
    """Returns the whole report, for the launcher's stderr."""
    title = f"{_failure_title(first)}, pid {first.pid}, host {os.uname().nodename}"
    lines = ["=" * WIDTH, title, "-" * WIDTH]
    said = last_words(first.last_lines())
    lines += said or ["(it wrote nothing to stderr)"]
    others = [w for w in workers if w is not first and not w.is_replaced]
    if others:
        lines += ["-" * WIDTH, *map(_outcome_of, others)]
    return "\n".join([*lines, "=" * WIDTH, ""])


def _failure_title(first: Worker) -> str:
    """Returns which rank failed and how it ended."""
    assert first.exit_code is not None
    return f"rank {first.rank} failed first: {describe_end(first.exit_code)}"


def last_words(lines: Sequence[str]) -> list[str]:
    """Returns the last traceback with those that it is chained to, or else the last
    lines."""
    starts = [i for i, line in enumerate(lines) if TRACEBACK in line]
    if not starts:
        return list(lines[-LAST_LINES:])
    start = starts.pop()
    while starts and _chains(lines[starts[-1] : start]):
        start = starts.pop()
    return list(lines[start:])


def _chains(lines: Sequence[str]) -> bool:
    return any(line.startswith(CHAINED) for line in lines)


def _outcome_of(worker: Worker) -> str:
    if worker.exit_code is None:
        return f"rank {worker.rank}: was not started"
    end = describe_end(worker.exit_code)
    if worker.was_told_to_end:
        end += " (ended by the launcher)"
    return f"rank {worker.rank}: {end}"
