# SPDX-License-Identifier: BSD-3-Clause
"""The operations of a job's ranks as rows of text, for ``distlite ps`` and for the
table after a failure.  It imports little, because a failed process may be about to
end."""

from __future__ import annotations

from distlite.tools.job import Job, Member
from distlite.tools.recording import Operation, Wait
from distlite.tools.text import plain, seconds

HEADERS = ("rank", "pid", "process", "in", "for", "waits for", "called at")


def table_of(job: Job) -> str:
    """Returns the table of a job as ``distlite ps`` prints it."""
    return f"{title_of(job)}\n{plain(HEADERS, rows_of(job))}"


def title_of(job: Job) -> str:
    """Returns the title: what the ranks have in common."""
    first = job.members[0].recording
    unseen = job.unseen()
    # Of an elastic world, processes of earlier epochs may have the same ranks.
    size = "" if job.size is None else f", {job.size - len(unseen)} of {job.size} ranks"
    missing = f"; not here: {', '.join(map(str, unseen))}" if unseen else ""
    name = job.name or "without a default group"
    return f"job {name} on {first.host}{size}{missing}: {first.command}"


def rows_of(job: Job) -> list[tuple[str, ...]]:
    """Returns a row for each operation and wait that has not ended; for a rank without
    one, its last operation."""
    rows = []
    for member in job.members:
        head = (
            "?" if member.rank is None else str(member.rank),
            str(member.recording.pid),
            member.state,
        )
        operations = member.recording.unfinished()
        rows += [head + _row(job, member, operation) for operation in operations]
        rows += [head + _wait_row(member, wait) for wait in member.recording.waits]
        if not operations and not member.recording.waits:
            rows.append(head + _idle_row(member))
    return rows


def _row(job: Job, member: Member, operation: Operation) -> tuple[str, ...]:
    what = operation.describe()
    group = operation.group
    if group is not None and group.name != "0":
        what += f" in group {group.name}"
    if group is not None and group.is_on_device:
        what += f" by {group.backend}"
    if operation.state == "queued":
        what += " (queued)"
    waits = ", ".join(map(str, job.waits_for(operation)))
    span = seconds(max(0, member.recording.taken - operation.since))
    return (what, span, waits or "-", str(operation.site or "-"))


def _wait_row(member: Member, wait: Wait) -> tuple[str, ...]:
    span = seconds(max(0, member.recording.taken - wait.since))
    return (wait.text, span, "-", str(wait.site or "-"))


def _idle_row(member: Member) -> tuple[str, ...]:
    last = member.recording.last_ended()
    if last is None:
        return ("no operation yet", "-", "-", "-")
    span = seconds(max(0, member.recording.taken - last.ended))
    failed = "" if last.status == "ok" else f" ({last.status})"
    return (f"none since {last.describe()}{failed}", span, "-", str(last.site or "-"))
