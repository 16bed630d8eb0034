# SPDX-License-Identifier: BSD-3-Clause
"""One answer for all members of a group that live, also of a group that is broken.

The members agree in the group's store, because links and shared memory are of no use
once a rank has ended in them. An attempt has a number, the same on all ranks:

    key below agree/NUMBER    written by
    flags                     each rank, when it comes: a line of its rank and flag
    count                     the same: who is the last to come decides at once
    decision                  whoever comes first, by compare_set: the answer, or null

Everybody takes the decision that is there. Any rank may decide, as soon as all ranks
have come or have ended, so the end of one that was about to decide delays nothing. A
rank that gives up makes the attempt void: its flag, which the next call may give
differently, then counts for nobody, and those that still wait begin the next attempt.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from .._C import DistBackendError, DistError, DistStoreError, ProcessGroup
from ..stores.own_connection import OwnConnection
from ..stores.timeouts import end_after
from .world import is_outside, world

__all__ = ["Agreement", "agree"]

# Seconds between two checks for ranks that have ended: at first, and at most.
SHORT, LONG = 0.02, 0.25
# Seconds that the store has for an answer, at least.
GRACE = 1.0


class Agreement(NamedTuple):
    """The result of `distlite.agree`; its truth value is `result`.

    Args:
        result: Whether the flags of all members that took part were true.
        dead: The ranks in the group that took no part because their processes had
            ended.

    Example:
        >>> result, dead = dist.agree(True)
        >>> result, dead
        (True, ())
    """

    result: bool
    dead: tuple[int, ...]

    def __bool__(self) -> bool:
        return self.result


def agree(
    flag: bool,
    group: ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
) -> Agreement:
    """Returns whether the flags of all living members are true.

    All of them get the same answer. All members call it, equally often. It uses only
    the group's store, so it works in a broken or aborted group, if the store outlives
    the ranks. If a rank ends during the call, either the answer of all survivors
    includes its flag, or that of all has the rank in `dead`. It waits for a
    rank that has left the group and lives.

    Args:
        flag: The flag of this rank.
        group: The group; None is the default group.
        timeout: The time that the call may take, a `timedelta` or seconds; None is the
            group's timeout, and a negative one never ends.

    Returns:
        An `Agreement`, true if all flags are, with the ranks that have ended.

    Raises:
        TypeError: The flag is not a bool.
        ValueError: This process is not a member of the group.
        DistBackendError: Ranks that have not ended did not call it within the timeout.
            Nothing is decided then, and another call may succeed.
        DistStoreError: The store is closed, or does not answer.
        DistNetworkError: The connection to the store was lost.

    Example:
        >>> if not dist.agree(rank != 1):
        ...     print("a rank has failed")
        a rank has failed
    """
    if is_outside(group):
        raise ValueError("this process is not a member of the group")
    wanted = world.require_default() if group is None else group
    began = time.monotonic()
    end = end_after(wanted.timeout if timeout is None else timeout)
    own = _is_true(flag)
    if wanted.size() == 1:
        return Agreement(own, ())
    attempts = world.agreements.get(wanted)
    if attempts is None:
        attempts = world.agreements[wanted] = _Attempts(wanted, end)
    return attempts.reach(wanted, own, began, end)


def _is_true(flag: object) -> bool:
    if isinstance(flag, bool):
        return flag
    import numpy as np

    if not isinstance(flag, np.bool_):
        raise TypeError(f"flag must be a bool, not {type(flag).__name__}")
    return bool(flag)


class _Attempts:
    """The attempts of one group, as one rank sees them."""

    def __init__(self, group: ProcessGroup, end: float) -> None:
        left = end - time.monotonic()
        self._link = OwnConnection("agree", group.get_group_store(), max(GRACE, left))
        self._store = self._link.store
        self._number = 0
        self._is_open = False  # this rank has come, and knows no decision
        self._stale: list[str] = []  # keys of earlier attempts

    def reach(
        self, group: ProcessGroup, flag: bool, began: float, end: float
    ) -> Agreement:
        awaited = set[int]()
        while True:
            result, ranks = self._outcome(group, flag, end)
            names = [self._key(name) for name in ("flags", "count", "decision")]
            self._number += 1
            if result is not None:
                self._stale = names[2:]
                return Agreement(result, tuple(ranks))
            self._stale += names
            # Who was missing in all attempts: one that gave up is missing in the next.
            awaited = awaited.intersection(ranks) or set(ranks) or awaited
            if time.monotonic() >= end:
                text = _timeout_text(group, sorted(awaited), end - began)
                raise DistBackendError(text)

    def _outcome(
        self, group: ProcessGroup, flag: bool, end: float
    ) -> tuple[bool | None, list[int]]:
        self._limit(end)
        if self._is_open:
            # The last call has failed here, and this one may give another flag.
            outcome = self._decide(None, [])
        else:
            self._is_open = True
            try:
                outcome = self._decision(group, flag, end)
            except DistError:
                raise  # the store does not answer
            except BaseException:
                with suppress(DistError):
                    self._decide(None, [])
                raise
        self._is_open = False
        return outcome

    def _decision(
        self, group: ProcessGroup, flag: bool, end: float
    ) -> tuple[bool | None, list[int]]:
        """Takes part in an attempt, and returns what was decided."""
        self._store.append(self._key("flags"), f"{group.rank()} {int(flag)}\n")
        is_due = self._store.add(self._key("count"), 1) >= group.size()
        pause = SHORT
        while True:
            is_late = time.monotonic() >= end
            self._limit(end)
            if is_due or is_late:
                result, ranks = self._proposal(group)
                if result is not None or is_late:
                    return self._decide(result, ranks)
            left = max(0.001, min(pause, end - time.monotonic()))
            raw = b""
            with suppress(DistStoreError):
                raw = self._store.get(self._key("decision"), timeout=left)
            if raw:
                return self._parse(raw)
            is_due, pause = True, min(2 * pause, LONG)

    def _proposal(self, group: ProcessGroup) -> tuple[bool | None, list[int]]:
        """Returns a decision, as far as this rank knows: None, and who is missing, as
        long as a rank may still come."""
        everybody, flags = range(group.size()), self._flags()
        dead = [r for r in everybody if r not in flags and group._has_ended(r)]
        # One of them may have come before it ended, and after the first look.
        flags = self._flags() if dead else flags
        dead = [r for r in dead if r not in flags]
        absent = [r for r in everybody if r not in flags and r not in dead]
        return (None, absent) if absent else (all(flags.values()), dead)

    def _flags(self) -> dict[int, bool]:
        # No value is "-", so this reads, and makes no key.
        raw = self._store.compare_set(self._key("flags"), "-", "-")
        try:
            rows = [line.split() for line in raw.splitlines() if line != b"-"]
            return {int(rank): bool(int(flag)) for rank, flag in rows}
        except ValueError:
            raise self._malformed("flags", raw) from None

    def _decide(
        self, result: bool | None, ranks: list[int]
    ) -> tuple[bool | None, list[int]]:
        """Returns the decision, which is that of the first that proposes one."""
        proposal = json.dumps([result, ranks]).encode()
        held = self._store.compare_set(self._key("decision"), "", proposal)
        if held == proposal and result is not None:
            # All that live have come, so nobody reads the attempts before any more.
            for key in (*self._stale, self._key("flags"), self._key("count")):
                self._store.delete_key(key)
        return self._parse(held)

    def _parse(self, raw: bytes) -> tuple[bool | None, list[int]]:
        with suppress(ValueError, TypeError, RecursionError):
            result, ranks = json.loads(raw)
            if type(result) in (bool, type(None)) and {*map(type, ranks)} <= {int}:
                return result, ranks
        raise self._malformed("decision", raw)

    def _malformed(self, name: str, raw: bytes) -> DistStoreError:
        shown = raw if len(raw) <= 60 else raw[:60] + b"..."
        return DistStoreError(
            f"the key agree/{self._key(name)} of the group's store does "
            f"not hold what agree() writes there, but {shown!r}: another program uses "
            "it"
        )

    def _key(self, name: str) -> str:
        return f"{self._number}/{name}"

    def _limit(self, end: float) -> None:
        self._link.limit(max(GRACE, min(end - time.monotonic(), 86400.0)))


def _timeout_text(group: ProcessGroup, absent: list[int], limit: float) -> str:
    shown = ", ".join(map(str, absent[:8])) + (", ..." if len(absent) > 8 else "")
    who = f"waiting for rank {shown}, which has" if absent else "other ranks gave up"
    if len(absent) > 1:
        who = f"waiting for {len(absent)} ranks, {shown}, which have"
    who += " not called it" if absent else ""
    return (
        f"agree() in group {group.group_name} timed out after {round(1000 * limit)}ms: "
        f"{who}. Nothing was decided: call it again, or end"
    )
