# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose object stays while its members change, by torch's interface.

A process that is in such a group has a handle, which names it until the next attempt.
Somebody, usually a service or the program, decides which processes go on, and gives
each of them the list of their handles and a number, the uuid. In the store, below
reconfigure/UUID, the first that comes writes its list, so that a process with another
list, or with a number that was used before, is told at once, and tells those that wait
for it. Then all make a group of the core's, which the object takes over.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from functools import partial
from operator import index
from weakref import WeakKeyDictionary

from .._C import (
    DistBackendError,
    DistError,
    DistStoreError,
    PrefixStore,
    ProcessGroup,
    Store,
    Work,
)
from ..futures import Future
from ..stores.own_connection import OwnConnection
from ..stores.timeouts import end_after, time_left
from .backends import Backend, serve_devices
from .check_in import Arrivals
from .communicators import connect_members
from .compat import FutureWork
from .group_making import GroupRequest
from .lifecycle import _quote, replace_default
from .members import MemberId, describe, is_known_dead, make_of_members, tell_fault
from .world import GroupInfo, world

__all__ = [
    "ReconfigureOptions",
    "_get_reconfigure_handle",
    "_reconfigure",
    "_supports_reconfigure",
    "make_reconfigurable",
]


class ReconfigureOptions:
    """What `ProcessGroup.reconfigure` takes; `_reconfigure` has the same arguments."""

    def __init__(self) -> None:
        self.uuid = 0
        self.handles: Collection[str] = []
        self.timeout: timedelta | float | None = None
        self.hints: dict[str, str] = {}

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"ReconfigureOptions({fields})"


class _Membership:
    """What a reconfigurable group keeps from one reconfiguration to the next."""

    def __init__(self, request: GroupRequest) -> None:
        self.request = request
        self.uuid: int | None = None  # of the present group
        self.members: list[str] = []  # of the present group, by rank
        self.id = MemberId("new-")

    def renew(self) -> None:
        """Gives this process another handle, which has the number of its group; who
        still waits for the old one sees that it is gone."""
        former, self.id = self.id, MemberId(f"{self.uuid}-")
        former.close()

    def has_ended(self, group: ProcessGroup, member: str) -> bool:
        """Returns whether a process is known to have ended, by the present group if it
        is
        in that: one that has left a group looks as if it had ended."""
        if is_known_dead(member, self.id.text):
            return True
        if _group_of(member) != _group_of(self.id.text):
            return False
        same = [_process(each) == _process(member) for each in self.members]
        return any(group._has_ended(rank) for rank, is_it in enumerate(same) if is_it)


_memberships: WeakKeyDictionary[ProcessGroup, _Membership] = WeakKeyDictionary()


def make_reconfigurable(request: GroupRequest) -> ProcessGroup:
    """Makes a group that meets nobody, and is of no use before it is reconfigured."""
    backends = request.info.backends
    if backends.plugins or backends.engine not in (Backend.GLOO, "cpu"):
        raise RuntimeError(
            f"enable_reconfigure: backend {backends.name} cannot be reconfigured; "
            "gloo and nccl can"
        )
    size = len(request.info.ranks)
    made = request.kind(
        *(request.store, request.rank, size, request.timeout, request.label),
        *(request.description, backends.engine),
        is_vacant=True,
    )
    serve_devices(made, backends, request.pg_options)
    made._abort("it has no members before the first _reconfigure()")
    _memberships[made] = _Membership(request)
    return made


def _membership_of(group: ProcessGroup) -> _Membership:
    _check_backends(group)
    found = _memberships.get(group)
    if found is None:
        raise NotImplementedError(
            f"group {group.group_name} cannot be reconfigured: it was made without "
            "init_process_group(enable_reconfigure=True)"
        )
    return found


def _check_backends(group: ProcessGroup) -> None:
    from .dispatch import _dispatchers

    known = _dispatchers.get(group)
    if known is not None and len({*known.made.values()}) > 1:
        raise RuntimeError(
            f"group {group.group_name} has multiple backends, which cannot be "
            "reconfigured together"
        )


def supports(group: ProcessGroup) -> bool:
    _check_backends(group)
    return group in _memberships


def handle_of(group: ProcessGroup) -> str:
    return _membership_of(group).id.text


def reconfigure(group: ProcessGroup, opts: ReconfigureOptions) -> Work:
    state, uuid = _membership_of(group), index(opts.uuid)
    if not -(2**63) <= uuid < 2**63:
        raise ValueError(f"uuid {uuid} has more than 64 bits")
    members = _members_of(opts.handles, state.id.text)
    limit = group.timeout if opts.timeout is None else opts.timeout
    until = end_after(limit)
    left = time_left(until).total_seconds()
    link = OwnConnection(f"reconfigure/{uuid}", state.request.store, left)
    held = _held_list(link.store, uuid, members, state.id.text)
    try:
        _check_same(link.store, uuid, members, held, state.id.text)
        made = _make(group, state, uuid, members, link.store, until)
    except BaseException as error:
        state.renew()
        group._abort(f"reconfiguring it failed: {_quote(error)}")
        raise
    state.uuid, state.members = uuid, members
    state.renew()
    _take_over(group, made)
    done: Future = Future()
    done.set_result([])
    return FutureWork(done)


def _members_of(handles: object, own: str) -> list[str]:
    """Returns the handles in the order of the new ranks."""
    if isinstance(handles, set | frozenset):
        handles = sorted(handles)
    if not isinstance(handles, list | tuple):
        raise TypeError(
            f"handles must be a list or a set of str, not {type(handles).__name__}"
        )
    for handle in handles:
        if not isinstance(handle, str):
            raise TypeError(f"a handle is a str, not {handle!r}")
        if handle.count(":") != 3:
            raise ValueError(f"{handle!r} is not of get_reconfigure_handle()")
    if len(set(handles)) != len(handles):
        raise ValueError(f"a handle is twice in the list: {_shown(handles)}")
    if own not in handles:
        raise ValueError(
            f"the handle of this process ({describe(own)}) is not in the list "
            f"{_shown(handles)}: each attempt needs new handles of all processes"
        )
    return list(handles)


def _shown(members: Collection[str]) -> str:
    return f"[{', '.join(map(describe, members))}]"


def _held_list(keys: Store, uuid: int, members: list[str], own: str) -> list[str]:
    """Returns the list of the first process that came, which may be this one; raises if
    the number was used for processes of which this is none."""
    mine = json.dumps(members)
    held = keys.compare_set("members", "", mine).decode(errors="replace")
    others = None
    with suppress(ValueError, RecursionError):
        others = json.loads(held)
    if not isinstance(others, list) or {*map(type, others)} != {str}:
        raise DistStoreError(
            f"the key reconfigure/{uuid}/members of the group's store does not hold a "
            f"list of handles, but {held[:60]!r}: another program uses it"
        )
    if own not in others:
        raise DistBackendError(
            f"uuid {uuid} was already used, for {_shown(others)}, and not for "
            f"{_shown(members)}: each reconfiguration needs a uuid of its own"
        )
    return others


def _check_same(
    keys: Store, uuid: int, members: list[str], held: list[str], own: str
) -> None:
    """Raises, here and where others wait for this process, if the lists differ."""
    if held == members:
        return
    text = (
        f"the processes do not have the same list for uuid {uuid}: {describe(own)} has "
        f"{_shown(members)}, another one has {_shown(held)}"
    )
    tell_fault(keys, text)
    raise DistBackendError(text)


def _make(
    group: ProcessGroup,
    state: _Membership,
    uuid: int,
    members: list[str],
    keys: Store,
    until: float,
) -> ProcessGroup:
    """Makes the new group, once all have come."""
    place = members.index(state.id.text)
    info = GroupInfo(state.request.info.backends, list(range(len(members))))
    asked = state.request
    store = PrefixStore(f"reconfigure/{uuid}", asked.store)
    request = GroupRequest(info, store, place, time_left(until))
    request.label, request.description = f"{asked.label}.{uuid}", group.group_desc
    request.pg_options = asked.pg_options

    def connect(made: ProcessGroup) -> None:
        connect_members(made, group, state.uuid, asked.device_id, until)

    has_ended = partial(state.has_ended, group)
    made = make_of_members(request, members, keys, until, has_ended, connect)
    made.set_timeout(group.timeout)
    if place == 0:
        with suppress(DistError, NotImplementedError):  # all have the group already
            Arrivals(keys, len(members)).clean()
    return made


def _process(handle: str) -> str:
    return handle.rpartition(":")[0]


def _group_of(handle: str) -> str:
    return handle.rpartition(":")[2].rpartition("-")[0]


def _take_over(group: ProcessGroup, made: ProcessGroup) -> None:
    world.agreements.pop(group, None)
    label = group.group_name
    if group is world.default:
        info = world.groups[group]
        info.ranks = list(range(made.size()))
        replace_default(group, info, made)
    else:
        group.shutdown()
        group._replace(made)
    group._set_group_name(label)


def _group(group: ProcessGroup | None) -> ProcessGroup:
    return world.require_default() if group is None else group


def _supports_reconfigure(group: ProcessGroup | None = None) -> bool:
    """Returns whether a group can be reconfigured.

    Args:
        group: The group; None is the default group.

    Returns:
        True if it was made by `init_process_group(enable_reconfigure=True)`.

    Raises:
        RuntimeError: The group has multiple backends.
    """
    return _group(group).supports_reconfigure


def _get_reconfigure_handle(group: ProcessGroup | None = None) -> str:
    """Returns the text that names this process in the next `_reconfigure`.

    Args:
        group: The group; None is the default group.

    Returns:
        The handle. After each attempt to reconfigure the process has another one.

    Raises:
        NotImplementedError: The group cannot be reconfigured.
    """
    return _group(group).get_reconfigure_handle()


def _reconfigure(
    uuid: int,
    handles: Collection[str],
    group: ProcessGroup | None = None,
    timeout: timedelta | float | None = None,
    hints: dict[str, str] | None = None,
) -> Work:
    """Makes a group one of the processes with these handles, under the same object.

    All of these processes call it, with the same list and number; those that are left
    out need not. If it fails, it fails on all of them, and the group is of no use until
    another call succeeds, with new handles and another number. All other groups of the
    process are left if it is the default group.

    Args:
        uuid: A number that no other reconfiguration over this store has.
        handles: What `_get_reconfigure_handle` says on each process. In a list they
            have the order of the new ranks; of a set the backend chooses it.
        group: The group; None is the default group.
        timeout: The time that it may take, a `timedelta` or seconds; None is the
            group's timeout.
        hints: Ignored; part of torch's signature.

    Returns:
        A Work that has ended.

    Raises:
        ValueError: The handle of this process is not in the list, or one is twice.
        DistBackendError: The processes have different lists; the uuid was already used,
            which leaves the group as it was; or a process has ended or has not come.
        DistStoreError: The store does not answer.
        NotImplementedError: The group cannot be reconfigured.
    """
    opts = ReconfigureOptions()
    opts.uuid, opts.handles, opts.timeout = uuid, handles, timeout
    opts.hints = {} if hints is None else hints
    return _group(group).reconfigure(opts)
