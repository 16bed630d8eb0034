# SPDX-License-Identifier: BSD-3-Clause
"""Writes the table of the job after an operation timed out, lost a peer or met another
call.

The extension calls this on a thread of its own after the exception was raised, in one
rank of the job on each host. Only that rank's exit waits for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from logging import ERROR, WARNING

from distlite.tools.dump import dump_asked
from distlite.tools.job import GONE, Job
from distlite.tools.log_capture import say
from distlite.tools.recording import Recording, parse
from distlite.tools.table import table_of


def report(
    seen: Sequence[tuple[str, memoryview]], asks_table: bool, asks_dump: bool
) -> None:
    """Writes the table of all ranks, and dumps this rank's recording if the environment
    says so.

    `seen` has snapshots of the ranks' recordings by path, this rank's first, whose
    memory is there until the call ends."""
    recordings = []
    for path, data in seen:
        recordings.append(parse(data, path))
        time.sleep(0)  # the thread that saw the failure may need the interpreter
    if not recordings:
        return
    mine = recordings[0]
    if asks_dump:
        _dump(seen[0][1], mine.rank)
    if asks_table:
        _write_table(mine, recordings)


def _write_table(mine: Recording, recordings: Sequence[Recording]) -> None:
    job = Job([r for r in recordings if r.job == mine.job], _state_then)
    head = f"rank {mine.rank} saw an operation fail; the ranks at that moment:"
    say(ERROR, f"{head}\n{table_of(job)}", mine.rank)


def _state_then(recording: Recording) -> str:
    """Returns the state that a process had when the snapshot was made, a moment ago.

    A process that was killed has left its recording behind.  One that has removed its
    recording, perhaps at its exit after the same failure, was running at that time."""
    state = recording.process_state()
    has_left = state == GONE and not os.path.exists(recording.path)
    return "running" if has_left else state


def _dump(data: memoryview, rank: int | None) -> None:
    try:
        path = dump_asked(data, rank)
    except OSError as error:
        say(ERROR, f"cannot write the recording of rank {rank}: {error}", rank)
    else:
        if path is not None:
            say(WARNING, f"wrote the recording of rank {rank} to {path}", rank)
