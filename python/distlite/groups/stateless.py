# SPDX-License-Identifier: BSD-3-Clause
"""Groups with a store of their own, for worlds inside of other people's programs.

All worlds of an address share one server, in which each has keys below its name.  They
are deleted when the world has been made; what a world leaves there that never was, once
its time is over, by the clock of the server.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta
from os import urandom
from typing import Any

from .._C import (
    DistNetworkError,
    DistStoreError,
    PrefixStore,
    ProcessGroup,
    Store,
    TCPStore,
    all_gather_object,
    barrier,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    send_object_list,
)
from ..rendezvous import address_of
from .backends import backends_of
from .check_in import Presence
from .group_making import GroupRequest
from .lifecycle import _integer, _left_of, _limit_of, _quote, join
from .world import GroupInfo

__all__ = ["StatelessGroup", "stateless_group"]


class StatelessGroup(ProcessGroup):
    """A group of `stateless_group`: one that is not part of a job.

    It is a `ProcessGroup`, which all functions take as `group=`; ranks are ranks in the
    group. A with statement leaves the group at its end, as `shutdown` does. After an
    exception it aborts the group, so that the errors of the other ranks quote the
    exception.

    Example:
        >>> with dist.stateless_group(address, rank, 2) as group:
        ...     values = np.array([rank + 1.0])
        ...     dist.all_reduce(values, group=group)
        ...     print(values, group.broadcast_obj({"step": 7} if rank == 0 else None))
        [3.] {'step': 7}
    """

    _root: TCPStore
    _presence: Presence | None

    def broadcast_obj(self, obj: Any = None, src: int = 0) -> Any:
        """Returns the object of rank `src` on every rank."""
        objects = [obj]
        broadcast_object_list(objects, group=self, group_src=src)
        return objects[0]

    def gather_obj(self, obj: Any, dst: int = 0) -> list[Any] | None:
        """Returns the objects of all ranks on rank `dst`, and None on the others."""
        objects = [None] * self.size() if self.rank() == dst else None
        gather_object(obj, objects, group=self, group_dst=dst)
        return objects

    def all_gather_obj(self, obj: Any) -> list[Any]:
        """Returns the objects of all ranks on every rank."""
        objects: list[Any] = [None] * self.size()
        all_gather_object(objects, obj, group=self)
        return objects

    def send_obj(self, obj: Any, dst: int) -> None:
        """Sends an object to rank `dst`, which calls `recv_obj`."""
        send_object_list([obj], group=self, group_dst=dst)

    def recv_obj(self, src: int) -> Any:
        """Returns the object that rank `src` sends by `send_obj`."""
        objects = [None]
        recv_object_list(objects, group=self, group_src=src)
        return objects[0]

    def shutdown(self) -> None:
        """Leaves the group, and ends the store's server if this process runs it and no
        other group of the process uses it."""
        super().shutdown()
        if self._presence is not None:
            self._presence.close()
        self._root.close()

    def __enter__(self) -> StatelessGroup:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is not None:
            self._abort(f"its with statement ended with {_quote(error)}")
        self.shutdown()


def stateless_group(
    address: str,
    rank: int,
    size: int,
    name: str = "0",
    *,
    timeout: timedelta | float | None = None,
    backend: str | None = None,
) -> StatelessGroup:
    """Makes a group of processes or threads that share only an address.

    It needs no launcher, no default group and no environment variables, and changes
    none of them, so a library can use it inside of any program. Any number of groups
    may use the same address, one after the other, or at the same time with different
    names.

    Rank 0, which has to be on the host of the address, runs the store's server if no
    other process serves there. The server ends when this process has left the last of
    its groups of the address. Existing groups do not need it.

    Args:
        address: The host and the port at which the ranks meet, as in "10.0.0.1:29500".
        rank: The rank of the caller, from 0 to `size` - 1.
        size: The number of ranks.
        name: Distinguishes groups that are made at the same address at the same time.
        timeout: The time that this call and, by default, each operation may take: a
            `timedelta` or seconds; None is 30 minutes, and negative is no limit.
        backend: The backend, as for `init_process_group`.

    Returns:
        The `StatelessGroup`, once all ranks have come.

    Raises:
        ValueError: The address, the rank or the size is wrong.
        DistNetworkError: The address cannot be reached, and rank 0 cannot serve there.
        DistStoreError: Not all ranks joined within the timeout; it names the missing
            ones.
        DistBackendError: The ranks cannot be connected, or passed different sizes.

    Example:
        >>> group = dist.stateless_group(address, rank, 2, timeout=20)
        >>> group.all_gather_obj(f"rank {rank}")
        ['rank 0', 'rank 1']
        >>> group.shutdown()
    """
    rank, size = _integer(rank, "rank"), _integer(size, "size")
    if size < 1:
        raise ValueError(f"size must be positive, not {size}")
    if not 0 <= rank < size:
        raise ValueError(f"rank must be from 0 to {size - 1} (size={size}), not {rank}")
    if not isinstance(name, str) or not name or "/" in name:
        raise ValueError(f"name must be a text without '/', not {name!r}")
    host, port = address_of(address)
    if port == 0:
        raise ValueError("a port that all ranks know is needed, not 0")
    backends = backends_of(backend)
    info = GroupInfo(backends, list(range(size)))
    limit, since = _limit_of(timeout, backends), time.monotonic()
    for is_last in (False, False, True):
        try:
            root = _open_store(host, port, rank, limit, since)
            return _join(root, name, rank, info, limit, since)
        except DistNetworkError:
            # The process that served may have left meanwhile: the next rank 0 serves.
            if is_last or _is_over(limit, since):
                raise
    raise AssertionError


# Seconds for a request to a server that may have ended.
_REQUEST = 5.0


def _open_store(
    host: str, port: int, rank: int, limit: timedelta, since: float
) -> TCPStore:
    left = _left_of(limit, since)
    if rank > 0:
        return TCPStore(host, port, timeout=left)
    try:
        return TCPStore(
            host,
            port,
            is_master=True,
            timeout=left,
            wait_for_workers=False,
            multi_tenant=True,
        )
    except DistNetworkError as error:
        refused = error  # usually because somebody serves there
    try:
        return TCPStore(host, port, timeout=_shorter(left))
    except DistNetworkError as error:
        raise error from refused


def _is_over(limit: timedelta, since: float) -> bool:
    return timedelta(0) <= limit <= timedelta(seconds=time.monotonic() - since)


def _shorter(limit: timedelta) -> timedelta:
    short = timedelta(seconds=_REQUEST)
    return min(limit, short) if limit >= timedelta(0) else short


def _join(
    root: TCPStore,
    name: str,
    rank: int,
    info: GroupInfo,
    limit: timedelta,
    since: float,
) -> StatelessGroup:
    """Makes the group with the ranks that come to the store, which is its from then
    on."""
    group, prefix = None, f"group/{name}/"
    try:
        root.set_timeout(_shorter(limit))
        _note_end(root, prefix, limit, since)
        request = GroupRequest(info, PrefixStore(prefix[:-1], root), rank, limit)
        request.kind, request.label = StatelessGroup, name
        request.description = "stateless"
        group, presence = join(request, since)
        assert isinstance(group, StatelessGroup)
        group._root, group._presence = root, presence
        _clean(group, prefix)
        root.set_timeout(limit)
    except BaseException:
        if group is not None:
            group.shutdown()
        root.close()
        raise
    return group


# A key for each group that is being made: the time by the server's clock from which on
# others may delete what is left of it.  Who does that puts a negative number there, the
# time until which it has to be done, and what tells it from others.
_ENDS = "group_ends/"
# Milliseconds: the end of a group without a timeout, and what deleting may take.
_NEVER, _LEASE = 1 << 62, 30_000


def _now(store: Store) -> int:
    """Milliseconds of the server's clock, which all ranks can read."""
    return int(store.stats()["uptime_ms"])


def _number_in(value: bytes) -> int:
    return int(value.partition(b" ")[0])


def _note_end(store: TCPStore, prefix: str, limit: timedelta, since: float) -> None:
    """Notes when the keys below `prefix` are of no use any more.

    What an earlier group has left there may be being deleted just then: so a group that
    begins anew loses no keys."""
    length = int(limit.total_seconds() * 1000) if limit >= timedelta(0) else _NEVER
    while True:
        now = _now(store)
        end, value = _ENDS + prefix, str(min(now + 2 * length, _NEVER))
        found = store.compare_set(end, "", value)
        number = _number_in(found)
        # The first rank has noted it for the others, unless that was in another group.
        if number >= min(now + length, _NEVER):
            return
        if now >= -number:
            store.compare_set(end, found, value)
        elif _is_over(limit, since):
            name = prefix.split("/")[1]
            raise DistStoreError(f"what is left of group {name!r} is being deleted")
        else:
            time.sleep(0.01)


def _clean(group: StatelessGroup, prefix: str) -> None:
    """Deletes the keys by which the ranks have met, while none of them can begin to
    meet again, and then what other groups have left."""
    store, keys = group._root, list[str]()
    barrier(group)
    with suppress(DistNetworkError):  # without a server there are no keys, either
        if group.rank() == 0:
            keys = store.list_keys()
            _delete(store, keys, prefix)
    barrier(group)
    with suppress(DistNetworkError):
        for key in keys:
            if key.startswith(_ENDS) and key != _ENDS + prefix:
                _delete_if_over(store, keys, key.removeprefix(_ENDS))


def _delete_if_over(store: TCPStore, keys: list[str], prefix: str) -> None:
    now, end = _now(store), _ENDS + prefix
    found = store.compare_set(end, "0", "0")
    claim = f"{-(now + _LEASE)} {urandom(8).hex()}".encode()
    is_over = abs(_number_in(found)) < now
    if is_over and store.compare_set(end, found, claim) == claim:
        _delete(store, keys, prefix)


def _delete(store: TCPStore, keys: list[str], prefix: str) -> None:
    for key in keys:
        if key.startswith(prefix):
            store.delete_key(key)
    store.delete_key(_ENDS + prefix)
