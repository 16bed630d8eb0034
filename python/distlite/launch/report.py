# SPDX-License-Identifier: BSD-3-Clause
"""The report of a failed job: the rank that failed first and its traceback, then one
line for each of the others."""

from __future__ import annotations

import os

from distlite.launch.worker import describe_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from distlite.launch.worker import Worker

WIDTH = 78
TRACEBACK = "Traceback (most recent call last)"
CHAINED = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
# Last lines that are shown of a rank that wrote no traceback.
LAST_LINES = 20


def failure_report(first: Worker, workers: Sequence[Worker]) -> str:
    """Returns the whole report, for the launcher's stderr."""
    title = f"{failure_title(first)}, pid {first.pid}, host {os.uname().nodename}"
    lines = ["=" * WIDTH, title, "-" * WIDTH]
    said = last_words(first.last_lines())
    lines += said or ["(it wrote nothing to stderr)"]
    others = [_outcome_of(worker) for worker in workers if worker is not first]
    if others:
        lines += ["-" * WIDTH, *others]
    return "\n".join([*lines, "=" * WIDTH, ""])


def failure_title(first: Worker) -> str:
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
