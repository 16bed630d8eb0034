# SPDX-License-Identifier: BSD-3-Clause
"""What ranks report at their end, for the launcher and spawn.

It tells whether a rank failed because it lost a peer, and whether the table of the
failure is still to be written.  A rank that lost a peer writes it, after its exception;
the first page of the recordings of the job says which one
(csrc/pg/record/recording_file.h).
"""

from __future__ import annotations

import os
import struct
import time

from distlite import _C

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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


def is_consequence(lines: Iterable[str]) -> bool:
    """Returns whether the last lines of a rank say that it failed because a peer was
    lost."""
    import re
    from itertools import takewhile

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
            for job in _names_in(folder):
                path = os.path.join(folder, job)
                if any(_pid_of(name) in self._pids for name in _names_in(path)):
                    yield _claim_in(path)


def _names_in(folder: str) -> list[str]:
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
