# SPDX-License-Identifier: BSD-3-Clause
"""What ``distlite ps`` shows, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from distlite.tools.job import Job
from distlite.tools.store_facts import Facts

# A sample: the name of its metric without "distlite_", its labels, and its value.
Sample = tuple[str, dict[str, Any], float]
METRICS = {
    "rank_up": "1 if the rank's process runs, 0 if it is stopped or gone",
    "collectives_total": "Collectives that the rank has begun in the group",
    "operation_seconds": "Time since the call of an operation that has not ended",
    "waited_for": "Operations of other ranks that wait for this rank",
    "store_up": "1 if the job's store answers",
}
COUNTERS = ("collectives_total", "store_requests", "store_refusals", "store_closed")


def text_of(jobs: list[tuple[Job, Facts | None]]) -> str:
    """Returns the samples of jobs and of their stores."""
    by_metric: dict[str, dict[str, float]] = {}
    for job, store in jobs:
        for name, labels, value in (*_of_ranks(job), *_of_store(job, store)):
            pairs = ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items())
            # Labels must be unique: of equal ones, such as several messages that one
            # line has sent, the largest value counts.
            samples = by_metric.setdefault(name, {})
            samples[pairs] = max(samples.get(pairs, 0.0), float(value))
    lines = []
    for name, samples in by_metric.items():
        if name in METRICS:
            lines.append(f"# HELP distlite_{name} {METRICS[name]}")
        kind = "counter" if name in COUNTERS else "gauge"
        lines.append(f"# TYPE distlite_{name} {kind}")
        lines += [f"distlite_{name}{{{k}}} {value}" for k, value in samples.items()]
    return "".join(f"{line}\n" for line in lines)


def _of_ranks(job: Job) -> Iterator[Sample]:
    waiting = [
        awaited.rank
        for member in job.members
        for operation in member.recording.unfinished()
        for awaited in job.waits_for(operation)
    ]
    for member in job.members:
        recording = member.recording
        rank = {"job": job.name, "host": recording.host, "rank": member.rank}
        yield "rank_up", {**rank, "pid": recording.pid}, member.state == "running"
        yield "waited_for", rank, waiting.count(member.rank)
        for group in recording.groups:
            labels = {**rank, "group": group.name, "backend": group.backend}
            if group.is_open:
                yield "collectives_total", labels, group.begun
        for operation in recording.unfinished():
            labels = {
                **rank,
                "operation": operation.op,
                "line": str(operation.site or ""),
            }
            age = max(0, recording.taken - operation.since) / 1e9
            yield "operation_seconds", labels, age


def _of_store(job: Job, facts: Facts | None) -> Iterator[Sample]:
    """Numbers become metrics; a dict of numbers becomes one with a label."""
    if facts is None:
        return
    labels = {"job": job.name, "address": facts["address"]}
    yield "store_up", labels, "error" not in facts
    for key, value in facts.items():
        if isinstance(value, int):
            yield f"store_{key}", labels, value
        elif isinstance(value, dict):
            for kind, number in value.items():
                yield f"store_{key}", {**labels, "kind": kind}, number


def _escaped(value: object) -> str:
    text = str(value).replace("\\", r"\\").replace('"', r"\"")
    return text.replace("\n", r"\n")
