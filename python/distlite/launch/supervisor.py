# SPDX-License-Identifier: BSD-3-Clause
"""One run of a job on this node: attempts, until one succeeds or none is left.

It owns what outlives an attempt: the guardian, the signals, the launcher's own output,
the store by which the ranks find each other, and the connection to the launchers of
other nodes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

from distlite._C import DistError, TCPStore
from distlite.launch.attempt import Attempt
from distlite.launch.environment import serves_store
from distlite.launch.files import make_folder
from distlite.launch.guardian import Guardian
from distlite.launch.options import DEFAULT_ADDRESS
from distlite.launch.output import own_sinks
from distlite.launch.place import Place
from distlite.launch.report import failure_report, failure_title
from distlite.launch.signals import SignalPipe, named_signals
from distlite.launch.worker import shell_code

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from distlite.launch.nodes import Nodes
    from distlite.launch.options import Options

PREFIX_VARIABLE = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"
PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 36, 37


class Supervisor:
    """The job on this node."""

    def __init__(self, options: Options, owns_process: bool = False) -> None:
        """`owns_process` says that all children of this process are the job's."""
        self.options = options
        self.owns_process = owns_process
        self.peers: Nodes | None = None
        self.listen_fd: int | None = None
        self.folder: str | None = None
        self._store: TCPStore | None = None
        self._open = contextlib.ExitStack()

    def run(self) -> int:
        """Runs the job; returns the launcher's exit code."""
        _open_standard_streams()
        self.sinks = own_sinks()
        try:
            self.folder = make_folder(self.options)
            scratch = None if self.options.keeps_files else self.folder
            self.guardian = Guardian(scratch)
        except OSError as error:
            return self._refuse(error)
        ending = named_signals(self.options.signals)
        try:
            with _subreaper(), self._open, SignalPipe(ending) as self.signals:
                return self._run_job()
        finally:
            self.guardian.close()

    def _run_job(self) -> int:
        try:
            self._meet()
        except OSError as error:
            return self._refuse(error)
        if self.options.keeps_files:
            self.say(f"distlite: files of the ranks' output: {self.folder}")
        for number in range(self.options.max_restarts + 1):
            attempt = Attempt(self, number)
            code = self._try(attempt)
            if not self._may_try_again(attempt):
                break
        attempt.finish_output()
        return code

    def _meet(self) -> None:
        """Makes the store, or finds it and the other nodes."""
        options = self.options
        if options.nnodes > 1:
            from distlite.launch.nodes import Nodes

            self.peers = self._open.enter_context(Nodes(options))
            return
        if serves_store(options):
            self._store = _serve(options)
            port = self._store.port
        else:
            from distlite.launch.master import bind_master

            master = bind_master(options.address, options.port)
            self._open.enter_context(master)
            self.listen_fd, port = master.fileno(), master.getsockname()[1]
        self.place = Place(options.run_id, port, [options.nproc_per_node])

    def _try(self, attempt: Attempt) -> int:
        """Makes one attempt; returns the exit code if it is the last one."""
        if self.peers is not None:
            self.peers.begin(attempt.number)
            attempt.wait_for_peers()
            if self.peers.place is not None:
                self.place = self.peers.place
        if not attempt.was_disturbed:
            try:
                attempt.run()
            except OSError as error:
                self._tell_peers(attempt, _without_number(error))
                attempt.gives_up = True
                return self._refuse(error)
        if self.peers is not None and not attempt.was_disturbed:
            self.peers.end(attempt.number)
            attempt.wait_for_peers(at_end=True)
        return self._conclude(attempt)

    def _conclude(self, attempt: Attempt) -> int:
        """Reports how the attempt ended, here and to the other nodes."""
        if attempt.caught is not None:
            self._tell_peers(attempt, "its launcher was stopped by a signal")
            return 128 + attempt.caught
        if attempt.failure_elsewhere is not None:
            self.say(f"distlite: {attempt.failure_elsewhere}")
            return 1
        if attempt.first_failed is None:
            return 0
        self._tell_peers(attempt, failure_title(attempt.first_failed))
        self.say(failure_report(attempt.first_failed, attempt.workers))
        return shell_code(attempt.first_failed.exit_code or 0)

    def _may_try_again(self, attempt: Attempt) -> bool:
        left = self.options.max_restarts - attempt.number
        if not attempt.was_disturbed or attempt.caught or attempt.gives_up or left < 1:
            return False
        if self.peers is not None and self.peers.is_over:
            return False
        self.say(
            f"distlite: restarting all ranks; {left - 1} restart(s) left after this one"
        )
        return True

    def _tell_peers(self, attempt: Attempt, text: str) -> None:
        if self.peers is not None:
            self.peers.fail(attempt.number, text)

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


@contextlib.contextmanager
def _subreaper() -> Iterator[None]:
    """Becomes the parent of the processes that ranks leave behind, to notice their
    end."""
    libc, before = ctypes.CDLL(None), ctypes.c_int()
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        # A program that goes on must not get the orphans of its other children.
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _open_standard_streams() -> None:
    # If one of them is closed at the start, a pipe of the launcher could take its
    # place.
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
