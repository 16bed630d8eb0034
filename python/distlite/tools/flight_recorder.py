# SPDX-License-Identifier: BSD-3-Clause
"""Recordings in the format of torch's flight recorder, which ``torchfrtrace`` analyses.

Messages are left out, as in the dumps of torch's gloo. An operation that torch does not
have gets the name of one that is called by the same ranks and moves similar data.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from typing import Any

from distlite.tools.dump import write
from distlite.tools.recording import Group, Operation, Recording

VERSION = "2.10"  # of torch's format
NAMES = {
    "all_reduce_coalesced": "allreduce_coalesced",
    "all_gather_coalesced": "all_gather_into_tensor_coalesced",
    "reduce_scatter_coalesced": "reduce_scatter_tensor_coalesced",
    "gather_v": "gather",
    "scatter_v": "scatter",
    "broadcast_object_list": "broadcast",
    "all_gather_object": "all_gather_v",
    "gather_object": "gather",
    "scatter_object_list": "scatter",
    "scan": "reduce",
    "exscan": "reduce",
    "window": "new_window",
}
# Operations whose result, or input, has a block of each rank.
GATHERING = ("all_gather", "all_gather_coalesced", "gather")
SCATTERING = ("reduce_scatter", "reduce_scatter_coalesced", "scatter")
STATES = {"queued": "scheduled", "running": "started", "ended": "completed"}
_Key = tuple[str, bool]  # the name of a group, and whether it is for devices


def write_dumps(recordings: Sequence[Recording], prefix: str) -> list[str]:
    """Writes a file for each rank, PREFIX<rank>, and returns their paths."""
    ranks = [recording.rank for recording in recordings]
    if None in ranks or len(set(ranks)) < len(ranks):
        raise ValueError(
            "torch's format needs recordings of different ranks of one job"
        )
    members = _members(recordings)
    for recording in recordings:
        data = pickle.dumps(dump_of(recording, members))
        write(f"{prefix}{recording.rank}", data)
    return [f"{prefix}{rank}" for rank in ranks]


def dump_of(recording: Recording, members: dict[_Key, list[int]]) -> dict[str, Any]:
    """Returns what torch's flight recorder would have dumped."""
    entries = _entries(recording)
    groups = [group for group in _latest(recording).values() if group.begun]
    return {
        "version": VERSION,
        "comm_lib_version": "",
        "entries": entries,
        "pg_config": {
            _name(group): {
                "name": _name(group),
                "desc": _description(group),
                "ranks": str(members[_key(group)]),
            }
            for group in groups
        },
        "pg_status": {_name(group): _status(group, entries) for group in groups},
    }


def _members(recordings: Sequence[Recording]) -> dict[_Key, list[int]]:
    """Returns the ranks of each group, as far as the recordings know them."""
    found: dict[_Key, dict[int, int]] = {}
    for recording in recordings:
        for key, group in _latest(recording).items():
            known = found.setdefault(key, {})
            known[group.rank] = recording.rank or 0
            if group.size == recording.size:
                known.update((rank, rank) for rank in range(group.size))
    return {
        key: [known[rank] for rank in sorted(known)] for key, known in found.items()
    }


def _latest(recording: Recording) -> dict[_Key, Group]:
    """Returns the groups; of those that were made again under a name, the last one."""
    return {_key(group): group for group in recording.groups}


def _entries(recording: Recording) -> list[dict[str, Any]]:
    """Returns the collectives of groups that are known, in the order of the calls."""
    latest = _latest(recording)
    calls = [
        (o, o.group)
        for o in recording.operations
        if o.group is not None and o.group is latest[_key(o.group)] and not o.is_message
    ]
    begun: Counter[int] = Counter()
    for operation, group in reversed(calls):  # ends with the earliest of each group
        begun[group.serial] = (operation.sequence or group.begun + 1) - 1
    # torch drops operations that are not in all recordings by these numbers.
    first = begun.total()
    entries = []
    for number, (operation, group) in enumerate(calls):
        begun[group.serial] += 1
        entry = _entry(operation, group, recording.to_wall_clock)
        sequence = operation.sequence or begun[group.serial]
        entry.update(collective_seq_id=sequence, op_id=sequence)
        entries.append({**entry, "record_id": first + number, "pg_id": group.serial})
    return entries


def _entry(operation: Operation, group: Group, clock: int) -> dict[str, Any]:
    one, all_of_them = [operation.count], [group.size, operation.count]
    sizes = [
        all_of_them if operation.op in names else one
        for names in (SCATTERING, GATHERING)
    ]
    has_data = operation.count > 0
    completed = operation.state == "ended" and operation.status == "ok"
    site = operation.site
    return {
        "process_group": (_name(group), _description(group)),
        "profiling_name": f"{'nccl' if group.is_on_device else 'gloo'}:"
        + NAMES.get(operation.op, operation.op),
        "input_sizes": [sizes[0]] if has_data else [[]],
        "input_dtypes": [operation.dtype] if has_data else [],
        "output_sizes": [sizes[1]] if has_data else [[]],
        "output_dtypes": [operation.dtype] if has_data else [],
        "state": STATES[operation.state]
        if completed or not operation.ended
        else "started",
        "p2p_seq_id": 0,
        "is_p2p": False,
        "retired": completed,
        "time_created_ns": operation.since + clock,
        "time_discovered_started_ns": operation.started + clock
        if operation.started
        else None,
        "time_discovered_completed_ns": operation.ended + clock if completed else None,
        "frames": []
        if site is None
        else [{"name": site.function, "filename": site.file, "line": site.line}],
    }


def _status(group: Group, entries: list[dict[str, Any]]) -> dict[str, int]:
    mine = [entry for entry in entries if entry["pg_id"] == group.serial]

    def last(*states: str) -> int:
        numbers = (e["collective_seq_id"] for e in mine if e["state"] in states)
        return max(numbers, default=-1)

    return {
        "last_enqueued_collective": last("scheduled", "started", "completed"),
        "last_started_collective": last("started", "completed"),
        "last_completed_collective": last("completed"),
    }


def _key(group: Group) -> _Key:
    return group.name, group.is_on_device


def _name(group: Group) -> str:
    return f"{group.name} ({group.backend})" if group.is_on_device else group.name


def _description(group: Group) -> str:
    return "default_pg" if group.name == "0" else "undefined"
