# SPDX-License-Identifier: BSD-3-Clause
"""``distlite trace``: writes the recordings of all ranks as one trace for Perfetto.

The format of the trace is Chrome's "JSON object" trace: a process per rank, a track per
group, and as many tracks for messages as there are at one time.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from distlite.launch.arguments import Parser
from distlite.tools.job import Job, jobs_of, none_found
from distlite.tools.recording import Group, Operation, Recording, read, read_all

Event = dict[str, Any]


def main(arguments: Sequence[str]) -> int:
    """Entry point of the subcommand."""
    options = _parser().parse_args(arguments)
    try:
        recordings = _recordings(options)
    except (OSError, ValueError) as error:
        print(f"distlite trace: {error}", file=sys.stderr)
        return 1
    text = json.dumps(trace_of(recordings))
    if options.output == "-":
        print(text)
        return 0
    with open(options.output, "w", encoding="utf-8") as file:
        file.write(text)
    count = sum(len(recording.operations) for recording in recordings)
    print(
        f"{options.output}: {count} operations of {len(recordings)} ranks; "
        "open it at https://ui.perfetto.dev"
    )
    return 0


def _parser() -> Parser:
    parser = Parser(
        "distlite trace",
        "Write the recorded operations of all ranks as a trace for Perfetto.",
        "[dump...]",
    )
    parser.add_argument(
        "dumps",
        nargs="*",
        metavar="dump",
        help="dumps of `distlite ps --dump` or TORCH_FR_DUMP_TEMP_FILE; without any, "
        "the present state of a job's ranks on this host",
    )
    parser.add_argument(
        "--job", default="", metavar="NAME", help="the job whose name begins with NAME"
    )
    parser.add_argument(
        "--pid", type=int, metavar="PID", help="the job with this process"
    )
    parser.add_argument(
        "-o",
        "--output",
        default="trace.json",
        metavar="FILE",
        help="file to write; - is stdout",
    )
    return parser


def _recordings(options: argparse.Namespace) -> list[Recording]:
    if options.dumps:
        return [read(path) for path in options.dumps]
    found = [job for job in jobs_of(read_all()) if job.is_alive()]
    return [member.recording for member in _chosen(found, options).members]


def _chosen(found: list[Job], options: argparse.Namespace) -> Job:
    """Returns the recordings of the one job that the options mean; of several, the user
    has to name one."""
    jobs = [job for job in found if job.name.startswith(options.job)]
    if options.pid is not None:
        jobs = [job for job in jobs if options.pid in _pids(job)]
        if found and not jobs:
            raise ValueError(f"process {options.pid} is not a rank of a job here")
    if not jobs:
        raise ValueError(none_found(found, options.job))
    if len(jobs) > 1:
        raise ValueError(
            f"there are {len(jobs)} jobs here; choose one with --job NAME or --pid PID:"
            + "".join(f"\n  {_describe(job)}" for job in jobs)
        )
    return jobs[0]


def _pids(job: Job) -> list[int]:
    return [member.recording.pid for member in job.members]


def _describe(job: Job) -> str:
    pids = ", ".join(str(pid) for pid in _pids(job)[:4])
    pids += ", ..." if len(job.members) > 4 else ""
    name = job.name or "(no name)"
    return f"{name}  pid {pids}  {job.members[0].recording.command}"


def trace_of(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Returns the whole trace; times are microseconds from the earliest operation
    on."""
    starts = [
        operation.since + recording.to_wall_clock
        for recording in recordings
        for operation in recording.operations
    ]
    origin = min(starts, default=0)
    ranks = [recording.rank for recording in recordings]
    by_rank = None not in ranks and len(set(ranks)) == len(ranks)
    events: list[Event] = []
    for recording in recordings:
        number = recording.rank if by_rank else recording.pid
        events += _events_of(recording, number or 0, origin)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ns",
        "otherData": {"job": recordings[0].job, "began_at_ns": str(origin)},
    }


def _events_of(recording: Recording, number: int, origin: int) -> Iterator[Event]:
    rank = "?" if recording.rank is None else str(recording.rank)
    name = f"rank {rank} (pid {recording.pid}, {recording.host})"
    yield _named("process_name", number, 0, name)
    yield {
        "ph": "M",
        "name": "process_sort_index",
        "pid": number,
        "tid": 0,
        "args": {"sort_index": number},
    }
    clock = recording.to_wall_clock - origin
    for track, (name, operations) in enumerate(_tracks(recording), 1):
        yield _named("thread_name", number, track, name)
        for operation in operations:
            yield _event(operation, (number, track), clock, recording.taken)


def _named(kind: str, process: int, track: int, name: str) -> Event:
    return {
        "ph": "M",
        "name": kind,
        "pid": process,
        "tid": track,
        "args": {"name": name},
    }


def _event(
    operation: Operation, place: tuple[int, int], clock: int, taken: int
) -> Event:
    start = operation.started or operation.queued
    end = operation.ended or taken
    args: dict[str, Any] = {
        "call": operation.describe(),
        "state": operation.state,
        "status": operation.status if operation.state == "ended" else None,
        "bytes": operation.count * operation.item_size,
        "called at": None if operation.site is None else str(operation.site),
        "file": None if operation.site is None else operation.site.file,
        "queued for us": (start - operation.queued) / 1e3 if operation.queued else None,
    }
    return {
        "ph": "X",
        "name": operation.op,
        "cat": "message" if operation.is_message else "collective",
        "pid": place[0],
        "tid": place[1],
        "ts": (start + clock) / 1e3,
        "dur": max(0, end - start) / 1e3,
        "args": {key: value for key, value in args.items() if value is not None},
    }


def _tracks(recording: Recording) -> Iterator[tuple[str, list[Operation]]]:
    """Returns the name and the operations of each track; those of a track do not
    overlap."""
    groups: list[Group | None] = [*recording.groups, None]
    for group in groups:
        mine = [o for o in recording.operations if o.group is group]
        name = "closed groups" if group is None else f"group {group.name}"
        if group is not None and group.is_on_device:
            name += f" by {group.backend}"
        for title, part in (
            (name, [o for o in mine if not o.is_message]),
            (f"{name}: messages", [o for o in mine if o.is_message]),
        ):
            for number, track in enumerate(_apart(part, recording.taken)):
                yield (f"{title} ({number + 1})" if number else title), track


def _apart(operations: Iterable[Operation], taken: int) -> list[list[Operation]]:
    """Divides operations into as few lists as possible without overlaps in a list."""
    tracks: list[tuple[int, list[Operation]]] = []
    for operation in sorted(operations, key=lambda o: o.started or o.queued):
        start = operation.started or operation.queued
        end = operation.ended or taken
        free = next((i for i, (busy, _) in enumerate(tracks) if busy <= start), None)
        if free is None:
            tracks.append((end, [operation]))
        else:
            tracks[free][1].append(operation)
            tracks[free] = (end, tracks[free][1])
    return [track for _, track in tracks]
