# SPDX-License-Identifier: BSD-3-Clause
"""``distlite ps``: the operations of the ranks on this host, and what they wait for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from distlite.launch.arguments import Parser
from distlite.tools.dump import dump_all
from distlite.tools.job import Job, Member, jobs_of, none_found
from distlite.tools.recording import Operation, read_all
from distlite.tools.store_facts import describe, store_of
from distlite.tools.table import HEADERS, rows_of, title_of
from distlite.tools.text import show
from distlite.tools.worlds import describe as describe_world

GROUP_FACTS = "name backend rank size is_open begun"
SITE_FACTS = "file line function"


def main(arguments: Sequence[str]) -> int:
    """Entry point of the subcommand."""
    options = _parser().parse_args(arguments)
    jobs, reason = _find_jobs(options)
    if options.dump is not None:
        if not jobs:
            print(f"distlite ps: {reason}", file=sys.stderr)
            return 1
        for path in dump_all(jobs, options.dump):
            print(path)
        return 0
    _show(jobs, reason, options)
    return 0


def _parser() -> Parser:
    parser = Parser(
        "distlite ps",
        "Show this user's ranks on this host: the operation of each and its duration, "
        "the ranks it waits for, and which ranks are stopped or dead.",
    )
    parser.add_argument(
        "--job", metavar="NAME", help="show only the job whose name begins with NAME"
    )
    parser.add_argument("--json", action="store_true", help="write JSON")
    parser.add_argument(
        "--all", action="store_true", help="also show jobs without a living rank"
    )
    parser.add_argument(
        "--dump",
        metavar="PREFIX",
        help="write each rank's recording to PREFIX<rank>, for `distlite trace`",
    )
    return parser


def _find_jobs(options: argparse.Namespace) -> tuple[list[Job], str]:
    """Returns the jobs to be shown, and the reason if there are none."""
    jobs = jobs_of(read_all())
    found = [job for job in jobs if options.all or job.is_alive()]
    shown = [job for job in found if job.name.startswith(options.job or "")]
    return shown, "" if shown else none_found(found, options.job)


def _show(jobs: list[Job], reason: str, options: argparse.Namespace) -> None:
    with_stores = [(job, store_of(job)) for job in jobs]
    if options.json:
        found = [{**job_facts(job), "store": store} for job, store in with_stores]
        print(json.dumps({"jobs": found}), flush=True)
        return
    if not jobs:
        print(reason, file=sys.stderr)
    for job, store in with_stores:
        show(title_of(job), HEADERS, rows_of(job), sys.stdout)
        if store is not None:
            print(describe(store))
            for world in store.get("worlds", ()):
                print(describe_world(world))
    sys.stdout.flush()


def job_facts(job: Job) -> dict[str, Any]:
    """Returns the facts of a job for JSON; times are in seconds before now."""
    return {
        "job": job.name,
        "host": job.members[0].recording.host,
        "size": job.size,
        "unseen": job.unseen(),
        "ranks": [_member_facts(job, member) for member in job.members],
    }


def _member_facts(job: Job, member: Member) -> dict[str, Any]:
    recording = member.recording
    last = recording.last_ended()
    return {
        "rank": member.rank,
        "pid": recording.pid,
        "host": recording.host,
        "command": recording.command,
        "state": member.state,
        "dropped": recording.dropped,
        "groups": [_some(group, GROUP_FACTS) for group in recording.groups],
        "current": [_facts(job, member, o) for o in recording.unfinished()],
        "waits": [
            {
                "text": wait.text,
                "since": (recording.taken - wait.since) / 1e9,
                **_some(wait.site, SITE_FACTS),
            }
            for wait in recording.waits
        ],
        "last": None if last is None else _facts(job, member, last),
    }


def _some(of: object, names: str) -> dict[str, Any]:
    """Returns the attributes of these names; each is None if there is no object."""
    return {name: getattr(of, name, None) for name in names.split()}


def _facts(job: Job, member: Member, operation: Operation) -> dict[str, Any]:
    taken = member.recording.taken
    ended = operation.ended
    return {
        "op": operation.op,
        "text": operation.describe(),
        "group": None if operation.group is None else operation.group.name,
        "state": operation.state,
        "status": operation.status if operation.state == "ended" else None,
        **_some(operation, "sequence tag root count dtype reduce_op"),
        "since": (taken - operation.since) / 1e9,
        "ended": (taken - ended) / 1e9 if ended else None,
        **_some(operation.site, SITE_FACTS),
        "waits_for": [
            {"rank": a.rank, "group_rank": a.group_rank, "state": a.state}
            for a in job.waits_for(operation)
        ],
    }
