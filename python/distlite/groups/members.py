# SPDX-License-Identifier: BSD-3-Clause
"""Processes that make a group from a list of their names, without ranks before."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .._C import (
    DistBackendError,
    DistError,
    DistStoreError,
    ProcessGroup,
    Store,
    _group_refuse,
    barrier,
)
from .check_in import ALL_ARE_HERE, HERE, Arrivals, Presence
from .group_making import GroupRequest, make_group
from .lifecycle import _quote

__all__ = ["MemberId", "describe", "is_known_dead", "make_of_members", "place_of_host"]

# Seconds between two looks for members that have ended: at first, and at most.
SHORT, LONG = 0.005, 0.05
# With more members than these, each looks less often.
CROWD = 8


class MemberId:
    """The name of this process as a member, and what shows that the process lives."""

    def __init__(self, prefix: str = "") -> None:
        nonce = prefix + os.urandom(8).hex()
        self.presence = Presence(nonce)
        place = place_of_host() if Presence.shows(nonce) else "-"
        host = os.uname().nodename.replace(":", "_")
        self.text = f"{host}:{os.getpid()}:{place}:{nonce}"

    def close(self) -> None:
        self.presence.close()


def describe(member: str) -> str:
    host, pid, _, _ = member.split(":")
    return f"pid {pid} on host {host}"


def place_of_host() -> str:
    """Returns what processes share that see each other's presences."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    network = os.stat("/proc/self/ns/net").st_ino
    hint = os.environ.get("DISTLITE_HOST_HINT", "")
    text = f"{boot} {network} {os.geteuid()} {hint}"
    return hashlib.sha1(text.encode()).hexdigest()[:12]


def is_known_dead(member: str, own: str) -> bool:
    """Returns whether a process has ended, of which this one would know."""
    _, _, place, nonce = member.split(":")
    is_near = place != "-" and place == own.split(":")[2]
    return is_near and not Presence.shows(nonce, if_full=True)


def make_of_members(
    request: GroupRequest,
    members: list[str],
    keys: Store,
    until: float,
    has_ended: Callable[[str], bool],
    connect: Callable[[ProcessGroup], object] = barrier,
) -> ProcessGroup:
    """Makes a group, once all members have come to the keys, which are new.

    If it fails on one of them, it fails on all, with the first cause.

    Args:
        request: The group, whose ranks are those in the list; `keys` are in its store.
        members: Their names, in the order of the ranks, the same list on all of them.
        keys: Keys of the store, perhaps over a connection of its own.
        until: The time.monotonic() at which the members must have come.
        has_ended: Returns whether a member that has not come is known to have ended.
        connect: Called with the group on all of them; returns when all have called it.

    Raises:
        DistBackendError: A member has not come, or has given up.
        DistStoreError: The store does not answer.
    """
    group = None
    try:
        _meet(members, request.rank, keys, until, has_ended)
        group = make_group(request)
        connect(group)
    except BaseException as error:
        reason = f"rank {request.rank} gave up: {_quote(error)}"
        if group is not None:
            group._abort(reason)
            group.shutdown()
        elif request.parent is not None:
            # Those that have come are in the group already, and read no keys.
            engine = request.info.backends.engine
            ranks = request.parent_ranks or []
            _group_refuse(
                request.parent, ranks, request.rank, request.label, engine, reason
            )
        with suppress(DistError):
            keys.set(f"cpu/{request.rank}", f"fault: {reason}")
            tell_fault(keys, reason)
        raise
    return group


def tell_fault(keys: Store, fault: str) -> None:
    """Ends the wait of the members that have come, with the first fault of all."""
    # The core reads this key as well (csrc/pg/cpu/join_fault.h).
    keys.set(ALL_ARE_HERE, keys.compare_set("fault", "", fault))


def _meet(
    members: list[str],
    place: int,
    keys: Store,
    until: float,
    has_ended: Callable[[str], bool],
) -> None:
    """Returns when all members of the list have come."""
    arrivals = Arrivals(keys, len(members))
    arrivals.add(place)
    crowd = max(1.0, len(members) / CROWD)  # each looks for all of the members
    pause = SHORT * crowd
    while True:
        is_late = time.monotonic() >= until
        left = max(0.001, min(pause, until - time.monotonic()))
        with suppress(DistStoreError):
            keys.wait([ALL_ARE_HERE], left)
            if (outcome := keys.get(ALL_ARE_HERE)) != HERE:
                raise DistBackendError(outcome.decode(errors="replace"))
            return
        pause = min(2 * pause, LONG * crowd)
        absent = [members[i] for i in arrivals.absent()]
        absent = [each for each in absent if is_late or has_ended(each)]
        if absent:
            names = ", ".join(map(describe, absent))
            what = "have not joined" if is_late else "have ended"
            raise DistBackendError(f"members of the new group {what}: {names}")
        if is_late:
            return
