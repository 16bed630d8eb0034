# SPDX-License-Identifier: BSD-3-Clause
"""What is written when an operation timed out or lost a peer: the table of the job.

Once per failure and host: whoever notices first looks at the other ranks' recordings,
which say when a rank last wrote one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator

from distlite import _C
from distlite.tools.dump import dump_asked
from distlite.tools.job import jobs_of
from distlite.tools.ps import table_of
from distlite.tools.recording import Recording, own, read_all

# Ranks notice the same failure within about a second of each other.
QUIET_NANOSECONDS = 10 * 10**9
LOCK_TRIES, LOCK_PAUSE = 1000, 0.001


def report() -> None:
    """Called by the extension; at most one table in a while."""
    mine = own()
    if mine is None:
        return
    try:
        path = dump_asked(mine.rank)
    except OSError as error:
        _write(f"distlite: cannot write the recording of rank {mine.rank}: {error}\n")
    else:
        if path is not None:
            _write(f"distlite: wrote the recording of rank {mine.rank} to {path}\n")
    with _alone():
        others = _others(mine)
        since = max(0, time.monotonic_ns() - QUIET_NANOSECONDS)
        if any(r.reported > since for r in [mine, *others]):
            return
        _C._recording_report()
    table = table_of(jobs_of([mine, *others])[0])
    head = f"rank {mine.rank} saw an operation fail; the ranks at that moment:"
    _write(f"distlite: {head}\n{table}\n")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Looks and says so before another rank looks; a lock on the folder, which leaves
    nothing behind.  Not waited for long: its holder may be stopped."""
    folders = filter(os.path.isdir, _C._recording_folders())
    folder = os.open(next(folders, "/"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        for _ in range(LOCK_TRIES):
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(LOCK_PAUSE)
        yield
    finally:
        os.close(folder)


def _others(mine: Recording) -> list[Recording]:
    if mine.job == "":
        return []
    return [r for r in read_all() if r.job == mine.job and r.pid != mine.pid]


def _write(text: str) -> None:
    """In one piece, so that the ranks' tables do not mix."""
    if sys.stderr is not None:
        sys.stderr.flush()
    os.write(2, text.encode(errors="replace"))
