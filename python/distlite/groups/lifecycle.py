# SPDX-License-Identifier: BSD-3-Clause
"""Making and leaving the default group."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from datetime import timedelta
from numbers import Real
from operator import index
from typing import Any

from .. import _C
from .._C import (
    DistBackendError,
    DistStoreError,
    PrefixStore,
    ProcessGroup,
    Store,
    TCPStore,
)
from .._environment import objects_setting
from ..constants import default_pg_timeout
from ..rendezvous import find_place
from .backends import Backend, DeviceBackends, backends_of
from .check_in import Attempt, CheckIn, Presence
from .group_making import GroupRequest, make_group
from .world import ExceptHook, GroupInfo, is_outside, world

__all__ = ["destroy_process_group", "init_process_group", "process_group"]

# A thread writes the table of a failure while the exception may end this process: the
# exit waits for it.  Children of multiprocessing end without atexit's functions.
threading._register_atexit(_C._finish_report)  # type: ignore[attr-defined]
atexit.register(_C._finish_report)


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    group_name: str = "",
    pg_options: Any | None = None,
    device_id: Any | None = None,
    _ranks: list[int] | None = None,
    enable_reconfigure: bool = False,
) -> None:
    """Joins this process to a job, and makes the default group.

    Returns when all processes of the job have called it. They find each other through a
    store, or through a URL that leads to one. `env://` (the default) takes RANK,
    WORLD_SIZE, MASTER_ADDR and MASTER_PORT from the environment, where `distlite run`
    and torchrun set them, or what it needs from `srun` and `mpirun`; `tcp://host:port`
    and `file:///path` need `rank` and `world_size`.

    Args:
        backend: The backend that moves the data: "gloo" (or "cpu"), "nccl", "mpi",
            "ucc", or one for each device, as in "cpu:gloo,cuda:nccl". None is "gloo".
        init_method: The URL; not together with `store`. It is not needed with backend
            "mpi" under MPI's launcher.
        timeout: The time that this call and, by default, each operation may take: a
            `timedelta` or seconds; None is 30 minutes, and negative is no limit.
        world_size: The number of processes of the job.
        rank: The rank of this process, from 0 to `world_size` - 1.
        store: A store that all processes share; `rank` and `world_size` are needed with
            it.
        group_name: Ignored; part of torch's signature.
        pg_options: Options of the backend NCCL, `ProcessGroupNCCL.Options`.
        device_id: The CUDA device of this process: its communicator is made at once.
        enable_reconfigure: Whether the members may change. Then the call does not wait
            for other processes, and operations fail before the first
            `distlite.distributed_c10d._reconfigure`.

    Raises:
        ValueError: There is a default group already, or an argument or a variable of
            the environment is missing or wrong.
        DistNetworkError: The store cannot be reached.
        DistStoreError: Not all processes have come within the timeout.
        DistBackendError: The processes cannot be connected, or disagree on the
            arguments.

    Example:
        >>> dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        >>> dist.get_world_size()
        2
        >>> dist.destroy_process_group()
    """
    if world.default is not None:
        raise ValueError(
            "trying to initialize the default process group twice! "
            f"This process is rank {world.default.rank()} of {world.default.size()} "
            "already; destroy_process_group() leaves, and new_group() makes further "
            "groups."
        )
    world_size, rank = _integer(world_size, "world_size"), _integer(rank, "rank")
    _check_store_arguments(store, init_method, world_size, rank)
    _C._deadlock_configure()
    backends = backends_of(backend)
    _check_extras(backends, pg_options, device_id)
    # `_ranks` are the ranks of these processes in a larger job.  Jobs with different
    # ones can share a store: the group's name is a hash of them.
    limit, label = _limit_of(timeout, backends), _label_of(_ranks)
    since, hosted = time.monotonic(), None
    _C._recording_make()
    _C._show_wait("init_process_group()")
    try:
        if store is None:
            asked = (init_method, world_size, rank)
            store, rank, world_size = _find_place(backends, *asked, limit)
            hosted = store if rank == 0 and isinstance(store, TCPStore) else None
        world_size, rank = _integer(world_size, "world_size"), _integer(rank, "rank")
        info = GroupInfo(backends, list(range(world_size)), device_id)
        request = GroupRequest(info, store, rank, limit)
        request.label = label
        request.pg_options, request.device_id = pg_options, device_id
        request.is_of_job = True
        if enable_reconfigure:
            from .reconfigure import make_reconfigurable

            group = make_reconfigurable(request)
            _C._show_wait(None)
        else:
            group, world.presence = join(request, since)
    except BaseException:
        _C._show_wait(None)
        raise
    try:
        # A peer may join the next group before this process leaves this one, and must
        # meet the same server: the store is kept until the next group.
        world.hosted_store = hosted or world.hosted_store
        _register(group, info)
    except BaseException:
        # The traceback keeps the group alive, and the others would wait for this rank
        # in it.
        world.groups[group] = info
        _forget_all()
        raise


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Leaves a group, or all groups; the other ranks need not call it.

    If this rank is ahead of others (as the root of a small broadcast may be), its calls
    are compared with theirs, for half a second at most. If they differ, it raises an
    error after it has left the group.

    Args:
        group: The group; None is the default group, and with it all others.

    Raises:
        AssertionError: There is no default group.
        ValueError: The group is not known, because it has been destroyed for example.
        DistBackendError: The ranks called different operations.

    Example:
        >>> dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
        >>> dist.destroy_process_group()
        >>> dist.is_initialized()
        False
    """
    if is_outside(group):
        return
    leaving = world.default if group is None else group
    if leaving is None:
        raise AssertionError(
            "Process group cannot be None: there is no default group, because "
            "init_process_group was not called, or it was destroyed already"
        )
    if leaving not in world.groups:
        raise ValueError("Invalid process group specified")
    error = _verify_calls(list(world.groups) if leaving is world.default else [leaving])
    if leaving is world.default:
        _forget_all()
    else:
        world.drop(leaving)  # another thread may be leaving it, too
        leaving.shutdown()
    if error is not None:
        raise error


@contextlib.contextmanager
def process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | float | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: Store | None = None,
    *,
    pg_options: Any | None = None,
    device_id: Any | None = None,
) -> Iterator[ProcessGroup]:
    """Joins this process to a job for the length of a with statement.

    The statement begins with `init_process_group` and ends with
    `destroy_process_group`, for all groups that have been made meanwhile. If an
    exception leaves it, the groups are aborted: the other ranks do not wait for this
    one, and their errors quote the exception. `SystemExit` without an error status ends
    the statement as usual.

    Args:
        backend: The backend, as for `init_process_group`.
        init_method: The URL by which the processes meet; not together with `store`.
        timeout: The time that joining and each operation may take: a `timedelta` or
            seconds; None is 30 minutes, and negative is no limit.
        world_size: The number of processes of the job.
        rank: The rank of this process, from 0 to `world_size` - 1.
        store: A store that all processes share; `rank` and `world_size` are needed with
            it.
        pg_options: Options of the backend NCCL, `ProcessGroupNCCL.Options`.
        device_id: The CUDA device of this process.

    Returns:
        A context manager, also usable as a decorator. Its value is the default group.

    Raises:
        ValueError: There is a default group already, or an argument or a variable of
            the environment is missing or wrong.
        DistNetworkError: The store cannot be reached.
        DistStoreError: Not all processes have come within the timeout.
        DistBackendError: The processes cannot be connected, or, at the end, called
            different operations.

    Example:
        >>> with dist.process_group("gloo", store=store, rank=rank, world_size=2) as pg:
        ...     x = np.array([rank + 1])
        ...     dist.all_reduce(x)
        ...     print(x, pg.size())
        [3] 2
        >>> dist.is_initialized()
        False
    """
    before = world.default
    try:
        init_process_group(
            backend,
            init_method,
            timeout,
            world_size,
            rank,
            store,
            pg_options=pg_options,
            device_id=device_id,
        )
        yield world.require_default()
        _leave_if_there()
    except BaseException as error:
        if before is not None:
            raise  # an error of another group
        if isinstance(error, SystemExit) and not error.code:
            _leave_if_there()
        else:
            _abandon(error)
        raise


def _leave_if_there() -> None:
    """Leaves the groups, unless the block has already done so or has joined anew."""
    if world.default is not None:
        destroy_process_group()


# Characters of an exception's first line that the other ranks' errors quote.
_QUOTED_LENGTH = 150


def _abandon(error: BaseException) -> None:
    """Leaves all groups because of an error; no other exception must hide it."""
    quoted = _quote(error)
    for group in list(world.groups):
        with contextlib.suppress(Exception):
            group._abort(f"its with statement ended with {quoted}")
            group.abort()  # a subclass of the user's may override it
    with contextlib.suppress(Exception):
        _forget_all(keeps_hook=True)


def _quote(error: BaseException) -> str:
    """Returns the exception's class and first line, with surrogates escaped."""
    try:
        lines = str(error).splitlines() or [""]
    except Exception:  # a class of the user's may raise anything in __str__
        lines = [""]
    text = f"{type(error).__name__}: {lines[0]}".removesuffix(": ")[:_QUOTED_LENGTH]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# Seconds that a rank which leaves early waits for the calls of the others.
_VERIFY_LIMIT = 0.5


def _verify_calls(groups: list[ProcessGroup]) -> DistBackendError | None:
    """Compares the calls that have not been compared so far; returns the error if ranks
    called different operations."""
    deadline = time.monotonic() + _VERIFY_LIMIT
    found = None
    for group in groups:
        left = max(0.0, deadline - time.monotonic())
        try:
            group._verify_calls(timedelta(seconds=left))
        except DistBackendError as error:
            found = found or error
    return found


def _integer(value: object, name: str) -> int:
    """Returns a plain int, whose text names the rank in the store: neither False nor
    0.0."""
    try:
        return index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None


def _check_store_arguments(
    store: Store | None, init_method: str | None, world_size: int, rank: int
) -> None:
    if store is None:
        return
    if init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if world_size <= 0:
        raise AssertionError("world_size must be positive if using store")
    if rank < 0:
        raise AssertionError("rank must be non-negative if using store")


def _find_place(
    backends: DeviceBackends,
    init_method: str | None,
    world_size: int,
    rank: int,
    limit: timedelta,
) -> tuple[Store, int, int]:
    if init_method is not None or backends.engine != Backend.MPI:
        return find_place(init_method or "env://", rank, world_size, limit)
    from .mpi import meet

    if world_size != -1 or rank != -1:
        warnings.warn(
            f"For MPI backend, world_size ({world_size}) and rank ({rank}) are ignored "
            "since they are assigned by the MPI runtime.",
            stacklevel=3,
        )
    return meet(limit, world_size)


def _limit_of(timeout: object, backends: DeviceBackends | None = None) -> timedelta:
    is_of_nccl = backends is not None and backends.device_backend_map == {
        "cuda": Backend.NCCL
    }
    if timeout is None and is_of_nccl:
        from .nccl import default_timeout

        return default_timeout()
    if timeout is None:
        return default_pg_timeout
    if isinstance(timeout, Real) and not isinstance(timeout, bool):
        # The same rules as in the extension (csrc/python/module/convert.c), which takes
        # the result.
        timeout = float(timeout)
        if timeout != timeout:
            raise ValueError("timeout must not be NaN")
        try:
            return timedelta(seconds=timeout)
        except OverflowError:
            return timedelta.max if timeout > 0 else timedelta(seconds=-1)
    if not isinstance(timeout, timedelta):
        raise TypeError(
            "Expected timeout argument to be of type datetime.timedelta, got "
            f"{timeout}, which is not a number of seconds either"
        )
    return timeout


def _label_of(ranks: list[int] | None) -> str:
    """Returns the default group's name."""
    if not ranks:
        return "0"
    import hashlib

    text = "_".join(str(index(rank)) for rank in ranks)
    return hashlib.sha1(text.encode()).hexdigest()


def _check_extras(
    backends: DeviceBackends, pg_options: object, device_id: object
) -> None:
    has_device = backends.device_backend_map.get("cuda") == Backend.NCCL
    if pg_options is not None and not Backend._plugins and not has_device:
        warnings.warn("pg_options: the cpu backend takes no options", stacklevel=3)
    if device_id is None:
        return
    if isinstance(device_id, int) and not has_device:
        raise ValueError(
            "device_id is an int, but no accelerator support is found in this version."
        )
    if "cuda" in backends.device_backend_map:
        from .nccl import index_of

        index_of(device_id)
        return
    raise ValueError(
        "init_process_group device_id parameter must be an accelerator with an index"
    )


def join(request: GroupRequest, since: float) -> tuple[ProcessGroup, Presence | None]:
    """Meets the other ranks in the store, and makes the group with them.

    `since` is when the timeout began, of which finding the store has used a part. The
    presence is to be kept until the group is left."""
    rank, size = request.rank, len(request.info.ranks)
    store, timeout, label = request.store, request.timeout, request.label
    if label != "0":
        store = PrefixStore(f"ranks/{label}", store)
    # A fake rank is alone with its store.
    is_fake = request.info.backends.engine == Backend.FAKE
    # The group's constructor refuses a rank that does not exist, and a registered
    # backend may make its group without any other rank.
    meets = not is_fake and 0 <= rank < size and not request.info.backends.plugins
    if is_fake:
        request.store = PrefixStore("default_pg/0", store)
    group, checked = None, None
    try:
        while group is None:
            if not is_fake:
                attempt = Attempt(store, rank, size)
                request.store = attempt.keys
                if request.is_of_job:
                    _C._recording_identify(attempt.job, rank, size)
                checked = CheckIn(attempt) if meets else None
                objects_setting()  # raises if it is wrong; give_up() tells the others
                if checked is not None and not checked.meet(label, timeout, since):
                    continue
            request.connect_timeout = _left_of(timeout, since)
            try:
                group = make_group(request)
            except DistBackendError:
                if checked is None or not checked.may_follow():
                    raise
        if os.environ.get("TORCH_DIST_INIT_BARRIER") == "1":
            left = _left_of(timeout, since)
            _store_based_barrier(rank, request.store, label, size, left)
        # Not in the caller: an interrupt on the way there would lose the group.
        _C._show_wait(None)
    except BaseException as error:
        if checked is not None:
            checked.give_up(error)
        if group is not None:
            group.shutdown()
        raise
    return group, None if checked is None else checked.presence


# The least time for connecting: a timeout that the check-in has almost used up must not
# fail a rank whose peers have all come.
_LEAST_LEFT = timedelta(seconds=0.05)


def _left_of(timeout: timedelta, since: float) -> timedelta:
    """Returns the rest of the timeout that began at `since`; a negative timeout never
    ends."""
    if timeout < timedelta(0):
        return timeout
    return max(timeout - timedelta(seconds=time.monotonic() - since), _LEAST_LEFT)


def _store_based_barrier(
    rank: int,
    store: Store,
    group_name: str,
    rendezvous_count: int,
    timeout: timedelta,
    logging_interval: timedelta = timedelta(seconds=10),
) -> None:
    """Returns when so many processes have called it with the name; never logs."""
    key = f"store_based_barrier_key:{group_name}"
    try:
        store.barrier(key, rendezvous_count, timeout)
    except DistStoreError as error:
        raise DistStoreError(
            "Timed out initializing process group in store based barrier on rank "
            f"{rank}, for key: {key} (world_size={rendezvous_count}, timeout={timeout})"
        ) from error


def _register(group: ProcessGroup, info: GroupInfo) -> None:
    world.groups[group] = info
    world.numbers.take()
    world.set_default(group)
    if world.is_of_thread:
        return  # the owner of the thread raises its errors
    # The hook of a group that was left because of an error may still be there.
    is_ours = world.except_hook is not None and sys.excepthook is world.except_hook
    replaced = world.replaced_except_hook if is_ours else None
    replaced = replaced or sys.excepthook
    world.replaced_except_hook = replaced
    world.except_hook = sys.excepthook = _prefixing(replaced, group.rank())


def replace_default(
    group: ProcessGroup, info: GroupInfo, made: ProcessGroup | None = None
) -> None:
    """Makes `group` the default group, and leaves all others.

    With `made`, `group` is left as it was, and becomes that."""
    count = world.group_count
    _forget_all(stays=True)
    if made is not None:
        group._replace(made)
    _register(group, info)
    world.group_count = world.name_base = count
    # Ranks that have not noticed may still use the earlier names.
    world.name_prefix = f"{group.group_name}:"


def _forget_all(stays: bool = False, keeps_hook: bool = False) -> None:
    """Leaves all groups.  With `stays`, another default group follows at once. With
    `keeps_hook`, the hook still puts the rank before the lines of an error."""
    if not stays:
        presence, world.presence = world.presence, None
        if presence is not None:
            presence.close()
    world.group_count = world.name_base = 0
    world.name_prefix = ""
    world.local_groups.clear()
    world.set_default(None)
    if not keeps_hook:
        _restore_hook()
    failed = None
    # After Ctrl-C here, the groups that have not been left are still known, and can be.
    for group in list(world.groups):
        try:
            group.shutdown()
        except Exception as error:  # a subclass of the user's may raise anything
            failed = failed or error
        world.drop(group)
    _C._clear_spare_memory()
    if failed is not None:
        raise failed


def _restore_hook() -> None:
    # Unless the program has installed another hook meanwhile.
    if sys.excepthook is world.except_hook and world.replaced_except_hook is not None:
        sys.excepthook = world.replaced_except_hook
    world.except_hook = world.replaced_except_hook = None


def _prefixing(hook: ExceptHook, rank: int) -> ExceptHook:
    """Returns a hook that calls `hook` and puts the rank before each line that it
    prints."""

    def prefixed(kind: Any, error: Any, trace: Any) -> None:
        import io

        # MPI_Finalize would wait for ranks that wait for this one.
        _C._mpi_give_up()
        captured, sink = io.StringIO(), sys.stderr
        sys.stderr = captured
        try:
            hook(kind, error, trace)
        finally:
            # A hook that raises has told of the error, perhaps, and its own comes next.
            sys.stderr = sink
            lines = captured.getvalue().split("\n")
            text = "\n".join(
                f"[rank{rank}]: {line}" if line else line for line in lines
            )
            if sink is not None:
                sink.write(text)

    return prefixed
