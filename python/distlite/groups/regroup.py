# SPDX-License-Identifier: BSD-3-Clause
"""Groups made from a group: its parts, and the group without some ranks.

Only members call these functions. The processes of a new group know each other already,
so they do not meet at a store, and ranks that are left out may have ended or stopped.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import timedelta
from operator import index
from typing import Any

from .. import _C
from .._C import DistBackendError, PrefixStore, ProcessGroup, Store, barrier
from .backends import backends_of
from .group_making import GroupRequest, child_request, make_group, remember
from .lifecycle import _limit_of, replace_default
from .shrink_check import Comparison
from .subgroups import next_name
from .world import GroupInfo, info_of, world

__all__ = ["SHRINK_ABORT", "SHRINK_DEFAULT", "shrink_group", "split", "split_group"]

SHRINK_DEFAULT = 0
SHRINK_ABORT = 1


def split_group(
    parent_pg: ProcessGroup | None = None,
    split_ranks: Iterable[Iterable[int]] | None = None,
    timeout: timedelta | float | None = None,
    pg_options: Any | None = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> ProcessGroup | None:
    """Divides a group into several groups.

    All ranks of the group call it, with the same lists.

    Args:
        parent_pg: The group to divide; None is the default group.
        split_ranks: The lists of ranks of that group, which become a group each. No
            rank is in two lists.
        timeout: The time that each operation of the new groups may take, a `timedelta`
            or seconds; None is 30 minutes.
        pg_options: Options of the backend NCCL, `ProcessGroupNCCL.Options`.
        group_desc: What the groups are for, for messages.
        backend: The backend of the new groups; None is that of the parent.

    Returns:
        The group of this rank, None if it is in none of the lists.

    Raises:
        ValueError: There are no lists, a rank is in two of them or is out of range, or
            the group is not known.

    Example:
        >>> own = dist.split_group(split_ranks=[[0], [1]])
        >>> own.size()
        1
    """
    # An array has no truth value, and that of a generator is always true.
    lists = [] if split_ranks is None else [list(part) for part in split_ranks]
    if not lists:
        raise ValueError("split_ranks cannot be None or empty")
    parent = world.require_default() if parent_pg is None else parent_pg
    parts = _check_parts(lists, parent.size())
    return _split(parent, parts, _limit_of(timeout), pg_options, group_desc, backend)


def split(
    color: int | None,
    key: int = 0,
    group: ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    group_desc: str | None = None,
) -> ProcessGroup | None:
    """Divides a group by a color that each rank chooses for itself.

    All ranks of the group call it. Those with the same color become a group.

    Args:
        color: A number that chooses this rank's group; None for no group.
        key: The order of the ranks in the new group: ranks with lower keys come first,
            and ranks with the same key in their old order.
        group: The group to divide; None is the default group.
        timeout: The time that each operation of the new groups may take, a `timedelta`
            or seconds; None is 30 minutes.
        group_desc: What the groups are for, for messages.

    Returns:
        The group of this rank, or None if `color` is None.

    Raises:
        TypeError: `color` or `key` is not an integer.
        ValueError: One of them has more than 64 bits, or the group is not known.
        DistBackendError: A rank failed, or did not call it within the group's timeout.

    Example:
        >>> backwards = dist.split(color=7, key=-rank)
        >>> backwards.rank() == 1 - rank
        True
    """
    import numpy as np

    parent = world.require_default() if group is None else group
    info_of(parent)
    limit = _limit_of(timeout)
    own = [color is not None, _in_64_bits(color or 0), _in_64_bits(key)]
    rows = np.empty((parent.size(), 3), np.int64)
    _C.all_gather_single(rows, np.array([own], np.int64), parent)
    ranks: dict[int, list[tuple[int, int]]] = {}
    for rank, (is_in, its_color, its_key) in enumerate(rows.tolist()):
        if is_in:
            ranks.setdefault(its_color, []).append((its_key, rank))
    parts = [[rank for _, rank in sorted(pairs)] for pairs in ranks.values()]
    return _split(parent, parts, limit, None, group_desc, None)


def _in_64_bits(number: object) -> int:
    value = index(number)  # type: ignore[arg-type]
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"color and key must have at most 64 bits, but one is {value}")
    return value


def _split(
    parent: ProcessGroup,
    parts: list[list[int]],
    limit: timedelta,
    pg_options: object,
    group_desc: str | None,
    backend: str | None,
) -> ProcessGroup | None:
    """Makes this rank's group of the parts, which all ranks know."""
    info = info_of(parent)
    turn = info.children.take()
    mine = next((part for part in parts if parent.rank() in part), None)
    if mine is None:
        _C._device_split(parent, -1, 0, None)
        return None
    backends = backends_of(backend) if backend else info.backends
    label = f"{parent.group_name}:split:{turn}:{mine[0]}"
    description = group_desc or f"{parent.group_desc}:split:{turn}"
    made_of = GroupInfo(backends, [info.ranks[rank] for rank in mine])
    request = child_request(parent, mine, made_of, limit, label)
    request.description, request.pg_options = description, pg_options
    made = make_group(request)
    try:
        _C._device_split(parent, parts.index(mine), mine.index(parent.rank()), made)
        remember(made, made_of)
    except BaseException:
        # The program never gets the group and so cannot abort it; the others would wait
        # for this rank.
        world.drop(made)
        made.shutdown()
        raise
    return made


def split_off(
    parent: ProcessGroup,
    ranks: Iterable[int],
    timeout: timedelta | float | None,
    label: str | None,
    description: str | None,
) -> ProcessGroup | None:
    """Carries out `ProcessGroup.split_group`: one part, which only its ranks call."""
    info = info_of(parent)
    limit = _limit_of(timeout)
    [mine] = _check_parts([list(ranks)], parent.size())
    if _C._device_name(parent) is not None:
        raise NotImplementedError(
            "arrays on devices need all ranks of the group to split it: call "
            "distlite.split_group"
        )
    if parent.rank() not in mine:
        return None
    chosen = [info.ranks[rank] for rank in mine]
    label = label or next_name(chosen, is_local=True)
    made_of = GroupInfo(info.backends, chosen)
    request = child_request(parent, mine, made_of, limit, label)
    request.description = description or f"{parent.group_desc}:split"
    made = make_group(request)
    remember(made, made_of)
    return made


def merge(
    group: ProcessGroup,
    store: Store,
    size: int,
    timeout: timedelta | float | None,
    label: str | None,
    description: str | None,
) -> ProcessGroup:
    """Carries out `ProcessGroup.merge_remote_group`."""
    info = info_of(group)
    limit = _limit_of(timeout)
    label = label or "merged"
    keys = PrefixStore(label, store)
    # The leader of each group takes the next ranks for its whole group.
    turn = info.children.take()
    own = PrefixStore(f"merge:{turn}", group.get_group_store())
    if group.rank() == 0:
        own.set("start", str(keys.add("taken", group.size()) - group.size()))
    start = int(own.get("start"))
    if start + group.size() > size:
        raise ValueError(
            f"merge_remote_group: this group would have ranks {start} to "
            f"{start + group.size() - 1} of {size}: the groups have more ranks in all, "
            f"or the store has been used for {label} before"
        )
    made_of = GroupInfo(info.backends, list(range(size)))
    request = GroupRequest(made_of, keys, start + group.rank(), limit)
    request.label = label
    request.description = description or f"{group.group_desc}:merged"
    made = make_group(request)
    remember(made, made_of)
    return made


def _check_parts(split_ranks: list[list[int]], size: int) -> list[list[int]]:
    parts = [sorted(index(rank) for rank in part) for part in split_ranks]
    seen: set[int] = set()
    for part in parts:
        if not part:
            raise ValueError("the split group cannot be empty")
        for rank in part:
            _check_rank(rank, size)
            if rank in seen:
                raise ValueError(f"rank {rank} appears twice in split_ranks")
            seen.add(rank)
    return parts


def _check_rank(rank: int, size: int) -> None:
    if not 0 <= rank < size:
        raise ValueError(
            f"Rank {rank} is out of range. Valid ranks are 0 to {size - 1} "
            f"(group size {size})"
        )


def shrink_group(
    ranks_to_exclude: list[int],
    group: ProcessGroup | None = None,
    shrink_flags: int = SHRINK_DEFAULT,
    pg_options: Any | None = None,
) -> ProcessGroup:
    """Makes a group of the survivors of a group, some of whose ranks may have died.

    All survivors call it, with the same list, and it returns when all have called it.
    The old group is destroyed. The ranks are numbered anew, in the old order. If it was
    the default group, the survivors form the new default group, and all other groups
    are destroyed.

    Args:
        ranks_to_exclude: The ranks in the group to leave out; they do not call it.
        group: The group; None is the default group.
        shrink_flags: `distlite.distributed_c10d.SHRINK_ABORT` first aborts the
            operations of this process in the old group; `SHRINK_DEFAULT` does not.
        pg_options: Options of the backend NCCL, `ProcessGroupNCCL.Options`.

    Returns:
        The new group.

    Raises:
        ValueError: A rank is out of range, or this rank is among those left out.
        DistBackendError: The survivors left out different ranks, or one of them did not
            call it within the timeout.

    Example:
        >>> pair = dist.new_group([0, 1])
        >>> if rank == 0:
        ...     rest = dist.shrink_group([1], group=pair)
        ...     print(rest.size())
        1
    """
    _check_shrink(ranks_to_exclude, shrink_flags)
    former = world.require_default() if group is None else group
    info = info_of(former)
    excluded = _check_excluded(former, ranks_to_exclude)
    if shrink_flags == SHRINK_ABORT:
        former.abort()
    survivors = [rank for rank in range(former.size()) if rank not in excluded]
    is_default = former is world.default
    ranks = (
        range(len(survivors)) if is_default else map(info.ranks.__getitem__, survivors)
    )
    made_of = GroupInfo(info.backends, list(ranks))
    # The names are the same only if all ranks leave out the same ranks.
    label = f"{former.group_name}:without:{'-'.join(map(str, sorted(excluded)))}"
    # Ranks of an attempt that failed still use the earlier name.
    label += f":{info.disputes}" if info.disputes else ""
    request = child_request(former, survivors, made_of, former.timeout, label)
    request.description, request.is_successor = former.group_desc, True
    comparison = Comparison(former, sorted(excluded), info.disputes)
    made = _make_and_meet(request, former, comparison, info)
    if shrink_flags != SHRINK_ABORT:
        # With an NCCL too old for it, the new group makes its communicator later.
        with suppress(NotImplementedError):
            _C._device_shrink(former, sorted(excluded), SHRINK_DEFAULT, made)
    _take_over(former, made, made_of)
    return made


def _take_over(former: ProcessGroup, made: ProcessGroup, info: GroupInfo) -> None:
    """Leaves the old group, and gives its place, also as the default group, to the new
    one."""
    if former is world.default:
        replace_default(made, info)
        return
    world.drop(former)
    former.shutdown()
    remember(made, info)


def _make_and_meet(
    request: GroupRequest, former: ProcessGroup, comparison: Comparison, info: GroupInfo
) -> ProcessGroup:
    """Makes the new group and waits for its ranks.

    A survivor may have tried before and given up: the attempts that it has left are met
    first, and skipped."""
    limit = former.timeout.total_seconds()
    deadline = time.monotonic() + (limit if limit >= 0 else float("inf"))
    while True:
        made = make_group(request)
        try:
            _meet(made, comparison, info)
        except DistBackendError as error:
            is_over = time.monotonic() >= deadline
            if is_over or not _is_of_an_old_attempt(str(error), made.rank()):
                raise
            comparison = Comparison(former, comparison.excluded, info.disputes)
        else:
            return made


def _is_of_an_old_attempt(text: str, rank: int) -> bool:
    """Returns whether others left, or gave up because this rank, now here, had not
    come."""
    awaited = text.partition(" gave up: ")[2].partition(" waiting for ")[2]
    return " left the group" in text or f"rank {rank} (pid {os.getpid()} " in awaited


def _meet(made: ProcessGroup, comparison: Comparison, info: GroupInfo) -> None:
    """Waits so that no rank leaves the old group before all have joined the new one."""
    comparison.start(made)
    try:
        barrier(made)
    except DistBackendError as error:
        made.shutdown()
        text = comparison.difference()
        if text:
            info.disputes += 1
            raise DistBackendError(f"shrink_group: {text}") from None
        raise error
    except BaseException:
        made.shutdown()
        raise
    finally:
        comparison.stop()


def _check_shrink(ranks_to_exclude: object, shrink_flags: object) -> None:
    if not isinstance(ranks_to_exclude, list):
        raise TypeError(
            "ranks_to_exclude must be a list, but got "
            f"{type(ranks_to_exclude).__name__}. "
            "Example: [1, 3, 5] to exclude ranks 1, 3, and 5."
        )
    if not ranks_to_exclude:
        raise ValueError(
            "ranks_to_exclude cannot be empty. To shrink a group, you must specify at "
            "least one rank to exclude. Example: [failed_rank_id]"
        )
    if shrink_flags not in (SHRINK_DEFAULT, SHRINK_ABORT):
        raise ValueError(
            f"Invalid shrink_flags value: {shrink_flags}. Must be one of: "
            "SHRINK_DEFAULT (0) or SHRINK_ABORT (1). Use SHRINK_ABORT to abort "
            "ongoing operations before shrinking."
        )


def _check_excluded(group: ProcessGroup, ranks: list[int]) -> set[int]:
    if group.size() < 2:
        raise ValueError(
            "Cannot shrink a process group with size 1. Group must have at least 2 "
            "ranks to support shrinking."
        )
    excluded = {index(rank) for rank in ranks}
    for rank in excluded:
        _check_rank(rank, group.size())
    if len(excluded) != len(ranks):
        raise ValueError(f"ranks_to_exclude contains a rank twice: {ranks}")
    if group.rank() in excluded:
        raise ValueError(
            f"rank {group.rank()} cannot exclude itself: only the remaining ranks call "
            "shrink_group; the excluded ones call destroy_process_group"
        )
    return excluded
