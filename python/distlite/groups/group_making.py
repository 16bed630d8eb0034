# SPDX-License-Identifier: BSD-3-Clause
"""Making a group of the core's, or of a registered backend, from a description."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .. import _C
from .._C import PrefixStore, ProcessGroup, Store
from .backends import Backend, serve_devices
from .world import GroupInfo, world

__all__ = ["GroupRequest", "child_request", "make_group", "remember"]


class GroupRequest:
    """Describes a group that is to be made."""

    __slots__ = (
        *("connect_timeout", "description", "device_id", "info", "is_of_job"),
        *("is_successor", "kind", "label", "parent", "parent_ranks", "pg_options"),
        *("rank", "store", "timeout"),
    )

    def __init__(
        self, info: GroupInfo, store: Store, rank: int, timeout: timedelta
    ) -> None:
        self.info = info
        self.store = store
        self.rank = rank
        self.timeout = timeout
        self.connect_timeout: timedelta | None = None  # None is the timeout
        self.label = "0"
        self.description = "default_pg"
        self.pg_options: Any = None
        self.device_id: Any = None
        # A group whose ranks know each other, and those of them that form this one.
        self.parent: ProcessGroup | None = None
        self.parent_ranks: list[int] | None = None
        # The new group takes the place of the parent, which may have been aborted.
        self.is_successor = False
        self.kind: type[ProcessGroup] = ProcessGroup
        # The ranks are those of a job, which recordings have the name of.
        self.is_of_job = False

    def __repr__(self) -> str:
        size = len(self.info.ranks)
        return f"GroupRequest({self.label!r}, rank {self.rank} of {size})"


def child_request(
    parent: ProcessGroup,
    ranks: list[int],
    info: GroupInfo,
    timeout: timedelta,
    label: str,
) -> GroupRequest:
    """Describes a group of `ranks` of `parent`.

    If that fails, the other members are told why, so that they do not wait for this
    rank."""
    rank = ranks.index(parent.rank())
    try:
        store = PrefixStore(label, parent.get_group_store())
    except BaseException as error:
        reason = f"{type(error).__name__}: {error or 'out of memory'}"
        _C._group_refuse(parent, ranks, rank, label, info.backends.engine, reason)
        raise
    request = GroupRequest(info, store, rank, timeout)
    request.label = label
    request.parent, request.parent_ranks = parent, ranks
    return request


def make_group(request: GroupRequest) -> ProcessGroup:
    """Makes the group, and lets it serve its devices.

    With a parent, it returns before all ranks have come: the first operation waits for
    those that are late."""
    group = None
    if Backend._plugins:
        from .custom import make_registered

        group = make_registered(request)
    if group is None:
        group = _make_native(request)
    try:
        backends = request.info.backends
        serve_devices(group, backends, request.pg_options, request.device_id)
    except BaseException:
        # The traceback keeps the group alive, and the others would wait for this rank
        # in it.
        group.shutdown()
        raise
    return group


def _make_native(request: GroupRequest) -> ProcessGroup:
    group = request.kind(
        request.store,
        request.rank,
        len(request.info.ranks),
        request.connect_timeout or request.timeout,
        request.label,
        request.description,
        request.info.backends.engine,
        request.parent,
        request.parent_ranks,
        is_successor=request.is_successor,
    )
    group.set_timeout(request.timeout)
    return group


def remember(group: ProcessGroup, info: GroupInfo) -> None:
    """Enters a group that is not the default group into the world."""
    group._set_global_ranks(info.ranks)
    world.groups[group] = info
