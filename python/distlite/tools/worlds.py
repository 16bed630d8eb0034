# SPDX-License-Identifier: BSD-3-Clause
"""The elastic worlds in a job's store, for ``distlite ps``."""

from __future__ import annotations

import json
import re
from typing import Any

from distlite import DistError, Store
from distlite.elastic.ledger import Arrival, Record, checked
from distlite.groups.members import describe as name_of, is_known_dead, place_of_host

Facts = dict[str, Any]
KEY = re.compile(r"((?:.*/)?elastic/([^/]+)/)epoch")


def worlds_of(store: Store) -> list[Facts]:
    """Reads the records of all worlds; raises DistError if the store does not answer.

    Nothing is written, and no value is waited for."""
    keys = set(store.list_keys())
    return [
        _world(store, keys, found[1], found[2])
        for key in sorted(keys)
        if (found := KEY.fullmatch(key))
    ]


def _world(store: Store, keys: set[str], prefix: str, name: str) -> Facts:
    def lines(key: str) -> list[str]:
        # A key that has just been deleted is as good as one that was not there.
        if prefix + key not in keys or not store.check([prefix + key]):
            return []
        return store.get(prefix + key).decode(errors="replace").splitlines()

    try:
        raw = lines("epoch")
        record = checked(Record(**json.loads(raw[0]))) if raw else Record()
        said = [
            checked(Arrival(**json.loads(line)))
            for line in lines(f"arrivals/{record.epoch}")
        ]
    except (ValueError, TypeError, RecursionError):
        return {"name": name, "error": "its records are not of this version"}
    here = f"-:0:{place_of_host()}:-"
    last = {each.id: each for each in said if not is_known_dead(each.id, here)}
    present = [each for each in last.values() if not each.is_leaving]
    members = [_member(record, index, here) for index in range(len(record.members))]
    return {
        "name": name,
        "epoch": record.epoch,
        "done": record.done,
        "finished": prefix + "finished" in keys,
        "members": members,
        "spares": [
            _facts_of_member(a.id) for a in present if a.id not in record.members
        ],
        "came": [_facts_of_member(a.id) for a in present if a.id in record.members],
    }


def _member(record: Record, index: int, here: str) -> Facts:
    member = record.members[index]
    return {
        **_facts_of_member(member),
        "rank": record.ranks[index],
        "behind": bool(record.ready) and member not in record.ready,
        "dead": is_known_dead(member, here),
    }


def _facts_of_member(member: str) -> Facts:
    host, pid, _, _ = member.split(":")
    return {"host": host, "pid": pid, "text": name_of(member)}


def describe(world: Facts) -> str:
    """Returns one line."""
    if "error" in world:
        return f"world {world['name']}: {world['error']}"
    members = world["members"]
    parts = [f"epoch {world['epoch']}, {len(members)} members"]
    if world["done"] is not None:
        parts.append(f"begun after step {world['done']}")
    for key, text in (("behind", "behind when it began"), ("dead", "dead")):
        ranks = [f"rank {m['rank']} ({m['text']})" for m in members if m[key]]
        if ranks:
            parts.append(f"{text}: {', '.join(ranks)}")
    for key, text in (("spares", "waiting"), ("came", "in next()")):
        if world[key]:
            parts.append(f"{text}: {', '.join(who['text'] for who in world[key])}")
    if world["finished"]:
        parts.append("finished")
    return f"world {world['name']}: {'; '.join(parts)}"


def find_worlds(store: Store) -> list[Facts]:
    """Returns the worlds; none where the store cannot list its keys."""
    try:
        return worlds_of(store)
    except (DistError, NotImplementedError):
        return []
