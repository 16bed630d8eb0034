# SPDX-License-Identifier: BSD-3-Clause
"""What ranks tell of a failure, for the launcher and spawn.

A rank can write its exception to the file that TORCHELASTIC_ERROR_FILE names, in
torch's layout.  A rank that lost a peer writes the table of the failure after its
exception; the first page of the recordings of the job says which one does
(csrc/pg/record/recording_file.h).
"""

from __future__ import annotations

import functools
import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import ParamSpec, TypeVar

from distlite import _C

P = ParamSpec("P")
R = TypeVar("R")

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
# A rank that failed because of a peer can end before that peer does: seconds to look
# for the cause before the rest of the job is ended.
SETTLING_TIME = 1.0
# The last line of the traceback of such a rank.
CONSEQUENCE = (
    r"(\w+\.)*(DistBackendError|DistNetworkError|DistStoreError|ConnectionResetError"
    r"|ConnectionRefusedError|BrokenPipeError)\b|.*Connection closed by peer"
)
# What a rank may write behind its traceback: the table of the failure.  A handler of
# logging may put any prefix before it.
TABLE = r".*\brank \d+ saw an operation fail; the ranks at that moment:"
# Seconds until a rank has noticed the failure, and until it has written the table.
NOTICE_TIME, WRITE_TIME = 0.3, 3.0
# A rank may notice a failure before its launcher does.
HEAD_START = 1.0
CLAIM = struct.Struct("=qq")  # when a table was claimed, and when one was written


def record(function: Callable[P, R]) -> Callable[P, R]:
    """Records an exception that leaves a function, for the launcher's report.

    Decorate the main function of a script with it. Without it, the report takes the
    traceback from the end of the rank's stderr; with it, the report is exact even if
    several threads or processes write there.

    Args:
        function: The function.

    Returns:
        A function that calls it, and raises its exceptions.

    Example:
        >>> from distlite.launch import record
        >>> @record
        ... def main(steps):
        ...     return 2 * steps
        >>> main(3)
        6
    """

    @functools.wraps(function)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            write_error(error)
            raise

    return recorded


def write_error(error: BaseException) -> None:
    """Writes an error into the file, if a launcher has named one and it is empty."""
    path = os.environ.get(ERROR_FILE)
    if not path:
        return
    import contextlib
    import json
    import traceback

    stack = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    extra = {"py_callstack": stack, "timestamp": str(int(time.time()))}
    # The last line of the stack, for an error without a text.
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = stack.splitlines()[-1]
    content = {"message": {"message": text, "extraInfo": extra}}
    # The traceback is on stderr in any case.
    with contextlib.suppress(OSError), open(path, "x") as file:
        json.dump(content, file)


def read_error(path: str | None) -> list[str]:
    """Returns the lines of the traceback, or of the message, in a file; none without a
    file."""
    if path is None or not os.path.exists(path):
        return []
    import json

    try:
        with open(path) as file:
            message = json.load(file)["message"]
        if isinstance(message, str):
            return message.splitlines()
        text = message.get("extraInfo", {}).get("py_callstack") or message["message"]
        return str(text).splitlines()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def is_consequence(lines: Iterable[str]) -> bool:
    """Returns whether the last lines of a rank say that it failed because a peer was
    lost."""
    lines = [line for line in lines if line.strip()]
    lines = list(takewhile(lambda line: not re.match(TABLE, line), lines)) or lines
    return bool(lines) and re.match(CONSEQUENCE, lines[-1]) is not None


class LastWords:
    """The last words of the ranks with these process ids, after a failure just now."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = {str(pid) for pid in pids}
        self._begun = time.monotonic()

    def are_pending(self) -> bool:
        """Returns whether to wait a little longer for the table."""
        spent = time.monotonic() - self._begun
        if spent >= WRITE_TIME:
            return False
        claims = list(self._claims())
        if any(self._is_new(claimed) for claimed, _ in claims):
            return any(
                self._is_new(claimed) and written < claimed
                for claimed, written in claims
            )
        return bool(claims) and spent < NOTICE_TIME

    def _is_new(self, nanoseconds: int) -> bool:
        return nanoseconds > (self._begun - HEAD_START) * 1e9

    def _claims(self) -> Iterator[tuple[int, int]]:
        """Yields the claims of the ranks' jobs; opens no file of other jobs."""
        for folder in _C._recording_folders():
            for job in names_in(folder):
                path = os.path.join(folder, job)
                if any(_pid_of(name) in self._pids for name in names_in(path)):
                    yield _claim_in(path)


def names_in(folder: str) -> list[str]:
    """Returns the names of the files in a folder; none if it cannot be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _pid_of(name: str) -> str:
    return name.partition("-")[2].partition("-")[0]


def _claim_in(folder: str) -> tuple[int, int]:
    try:
        with open(os.path.join(folder, "claim"), "rb") as file:
            claimed, written = CLAIM.unpack(file.read(CLAIM.size))
    except (OSError, struct.error):
        return 0, 0
    return claimed, written
