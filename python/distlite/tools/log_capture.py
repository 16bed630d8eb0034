# SPDX-License-Identifier: BSD-3-Clause
"""The log as records of the logger "distlite".

The core logs where Python may not be called: with locks held, and on threads without
the GIL. Its lines come through a pair of sockets, which a thread reads.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import signal
import socket
import threading
import traceback

from .. import _C

__all__ = ["capture_log"]

_LINE = re.compile(r"(?:\[rank(\d+)\]:)?\[([IWE])[^]]* distlite\] (.*)\n", re.DOTALL)
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR}
_LONGEST = 4096  # no line of the core is longer
_END_LIMIT = 5.0  # seconds; a handler may hang, and the process must be able to exit


class _Reader(threading.Thread):
    """Makes records of lines, from its creation to `end()`."""

    def __init__(self) -> None:
        super().__init__(name="distlite-log", daemon=True)
        kind = socket.SOCK_SEQPACKET
        self._lines, self._writer = socket.socketpair(socket.AF_UNIX, kind)
        _C._capture_log(self._writer.fileno())
        self.start()

    def run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        while data := self._lines.recv(_LONGEST):
            line = _LINE.fullmatch(data.decode(errors="backslashreplace"))
            assert line is not None, data
            rank, letter, text = line.groups()
            _record(_LEVELS[letter], text, None if rank is None else int(rank))

    def end(self) -> None:
        """Returns when handlers have received all lines; those that one keeps waiting
        for too long go to standard error."""
        self._writer.shutdown(socket.SHUT_WR)
        self.join(_END_LIMIT)
        while data := self._lines.recv(_LONGEST):
            os.write(2, data)


_reader: _Reader | None = None
_lock = threading.Lock()


def capture_log(capture: bool = True) -> None:
    """Sends the library's log to the logger "distlite", or to standard error again.

    It is to the log what `logging.captureWarnings` is to warnings. Handlers are called
    on a thread of its own.

    Args:
        capture: False returns when the handlers have received the lines so far, after 5
            seconds at most. The end of the process does that, too; `os._exit` does not.

    Example:
        >>> dist.capture_log()
        >>> dist.capture_log(False)
    """
    global _reader
    with _lock:
        if capture and _reader is None:
            _end_at_exit()
            _reader = _Reader()
        elif not capture and _reader is not None:
            _reader.end()
            _reader = None


@functools.cache
def _end_at_exit() -> None:
    """Not by atexit, whose functions children of multiprocessing do not call.

    A thread may be writing the table of a failure, which goes first: the last one that
    is registered is called first."""
    register = threading._register_atexit  # type: ignore[attr-defined]
    register(capture_log, False)
    register(_C._finish_report)


def _forget_parent() -> None:
    """In a forked child: its lines go to standard error, and not to the parent."""
    global _reader, _lock
    _C._capture_log(-1)
    _reader, _lock = None, threading.Lock()


os.register_at_fork(after_in_child=_forget_parent)


def say(level: int, text: str, rank: int | None = None, exc_info: bool = False) -> None:
    """Makes a record, or writes to standard error, in one piece, so that the ranks'
    texts do not mix. `exc_info`: also the exception that is being handled."""
    if _reader is not None:
        _record(level, text, rank, exc_info)
    else:
        _write(text, exc_info)


def _record(level: int, text: str, rank: int | None, exc_info: bool = False) -> None:
    """The exception of a handler is written to standard error, together with the
    text."""
    try:
        logger = logging.getLogger("distlite")
        logger.log(level, text, exc_info=exc_info, extra={"rank": rank})
    except BaseException:
        _write(text, True)


def _write(text: str, exc_info: bool) -> None:
    error = traceback.format_exc() if exc_info else ""
    with contextlib.suppress(OSError):  # it may be closed
        os.write(2, f"distlite: {text}\n{error}".encode(errors="backslashreplace"))
