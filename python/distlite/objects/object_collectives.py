# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects.

Each begins with headers, by which every rank describes its objects to all others. All
ranks come to the same conclusion, so that a failure on one rank is an error on every
rank and none waits for data that will not come. Small objects are in the header itself;
larger data follow, a large array directly from the sender's memory into the receiver's.

Objects are pickled, and loading a pickle runs code that its sender chose.  In safe mode
only data travel, see safe_encode.py: `safe=True` in a call, set_safe_objects() for a
group, DISTLITE_OBJECTS=safe for the process.  object_trust.py says who may send
pickles.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from .._C import DistBackendError, DistError, ProcessGroup
from .._environment import objects_setting
from ..groups.world import info_of, is_outside, world
from .object_headers import (
    COUNT_END,
    FULL,
    HEAD,
    KIND_END,
    ROOM,
    Call,
    Header,
    exchange,
    header_of,
    stream_on,
)
from .object_message import NOTHING, Message, failure, length_of, load, pack, said
from .object_transfer import (
    all_gather_rest,
    broadcast_rest,
    gather_rest,
    scatter_rest,
    scattered,
)
from .object_trust import judge

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "scatter_object_list",
    "set_safe_objects",
]

# The operations of _exchange_headers().
BROADCAST, ALL_GATHER, GATHER, SCATTER = range(4)
NO_OPERATION = -1  # a message
ON_ROOT, ON_ALL = (HEAD.size, FULL), (FULL, FULL)
# The entry of a message of scatter: the size of its stream, and the number of parts.
ENTRY = struct.Struct("<QQ")
NO_BUFFERS: list[Any] = []

# The setting of each group that has one of its own.
_is_safe_in: WeakKeyDictionary[ProcessGroup, bool] = WeakKeyDictionary()


def set_safe_objects(safe: bool | None, group: ProcessGroup | None = None) -> None:
    """Chooses whether the objects of a group are sent in safe mode.

    In safe mode only data can be sent: None, numbers, text, bytes, lists, tuples,
    dicts, sets, dates, NumPy arrays, and dataclasses that are registered with
    `register_safe_type`. Loading them runs no code. An argument `safe` of a call takes
    precedence.

    Args:
        safe: True or False; None follows DISTLITE_OBJECTS. All ranks must choose the
            same, otherwise their calls raise DistBackendError. With
            DISTLITE_OBJECTS=safe, calls in a group for which it is False raise
            ValueError.
        group: The group; None is the default group.

    Raises:
        ValueError: There is no default group.

    Example:
        >>> group = dist.new_group()
        >>> dist.set_safe_objects(True, group)
        >>> found = [None, None]
        >>> dist.all_gather_object(found, {"rank": rank}, group=group)
        >>> found
        [{'rank': 0}, {'rank': 1}]
    """
    where = world.require_default() if group is None else group
    if safe is None:
        _is_safe_in.pop(where, None)
    else:
        _is_safe_in[where] = bool(safe)


def begin(
    op: int,
    name: str,
    group: Any,
    root: tuple[int | None, int | None] | None,
    safe: bool | None,
) -> Call | None:
    """Returns the call's description; outside of the group it warns and returns None.
    `root` is (global rank, rank in the group)."""
    if group is None:
        group = world.require_default()
    elif is_outside(group):
        import warnings

        rank = world.default.rank() if world.default is not None else -1
        text = f"Running {name} on global rank {rank} which does not belong to the "
        warnings.warn(text + "given group.", stacklevel=3)
        return None
    elif not isinstance(group, ProcessGroup):
        info_of(group)  # raises
    call = Call(op, name, group, -1)
    if root is not None:
        call.root = root_of(call, *root)
    if safe is None:
        safe = _is_safe_in.get(group) if _is_safe_in else None
    if safe is None:
        safe = objects_setting() == "safe"
    judge(call, safe, call.root if op == NO_OPERATION else -1)
    return call


def root_of(call: Call, rank: int | None, group_rank: int | None) -> int:
    """Returns the rank in the group; raises ValueError if it is not a member."""
    if rank is not None and group_rank is not None:
        raise ValueError("Can't specify both group_rank and global_rank")
    root = group_rank
    if rank is not None:
        root = rank
        info = None if call.group is world.default else world.groups.get(call.group)
        if info is not None:
            if rank not in info.ranks:
                raise ValueError(
                    f"Global rank {rank} is not part of group {call.group}"
                )
            root = info.ranks.index(rank)
    if root is None:
        raise ValueError("Must specify global_rank or group_rank")
    if not 0 <= root < call.size:
        raise ValueError(f"{call.where()}: rank {root} is not in it, of {call.size}")
    return root


def or_first(group: Any, rank: int | None, group_rank: int | None) -> Any:
    """Returns the given ranks or, without any, the default root: global rank 0, or the
    first rank of a group without it."""
    if rank is None and group_rank is None:
        info = None if group is None or is_outside(group) else world.groups.get(group)
        return (None, 0) if info is None or 0 not in info.ranks else (0, None)
    return rank, group_rank


def loaded(call: Call, source: int, stream: Any, buffers: list[Any]) -> Any:
    """Loads what `source` sent.  All ranks have their data by now, so an error here
    does not affect the group."""
    try:
        return load(stream, buffers, call.is_safe)
    except Exception as error:
        raise DistBackendError(
            f"{call.where()}: the object from rank {source} cannot be loaded on rank "
            f"{call.rank}: {type(error).__name__}{said(error)}"
        ) from error


def moved(call: Call, move: Callable[..., Any], *arguments: Any) -> Any:
    """Carries out the rest of a collective.  After the headers the other ranks rely on
    this one, so an error that they do not know of aborts the group."""
    try:
        return move(call, *arguments)
    except DistError:
        raise
    except BaseException:
        # For example out of memory: the others, which are already waiting, have to be
        # told.
        call.group.abort()
        raise


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Copies a list of objects of one rank into the lists of all others.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: On the source the objects; on the other ranks a list of the same
            length, whose elements are replaced.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        device: Ignored; part of torch's signature.
        group_src: The rank of the source in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        TypeError: As in every collective of objects, an object of this rank is not
            data, in safe mode; otherwise what pickling raises. The other ranks raise
            DistBackendError.
        DistBackendError: A rank failed or did not call it in time; the lists have
            different lengths; or an object could not be sent or loaded. Every rank
            raises it, except that an object that cannot be loaded is an error on that
            rank only.
        ValueError: The source is not a member of the group.

    Example:
        >>> settings = [{"rate": 0.1}, "adam"] if rank == 0 else [None, None]
        >>> dist.broadcast_object_list(settings, src=0)
        >>> settings
        [{'rate': 0.1}, 'adam']
    """
    call = begin(
        BROADCAST, "broadcast_object_list", group, or_first(group, src, group_src), safe
    )
    if call is None:
        return
    is_root = call.rank == call.root
    count, message = length_of(call, "object_list", object_list, not is_root)
    message = call.refusal or message
    if is_root and message.error is None:
        message = pack(call, list(object_list), True)
    own = header_of(call.kind, message, count, ROOM if is_root else 0)
    header = exchange(call, message, own, ON_ROOT, COUNT_END)[call.root]
    stream, buffers = stream_on(header), NO_BUFFERS
    if stream is None:
        stream, buffers = moved(call, broadcast_rest, message, Header(header))
    if not is_root:
        objects = loaded(call, call.root, stream, buffers)
        for i, item in enumerate(objects):
            object_list[i] = item


def all_gather_object(
    object_list: list[Any],
    obj: Any,
    group: ProcessGroup | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Collects an object of each rank in a list, on every rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: The output, a list with a place for each rank of the group, or
            more. It gets a copy of this rank's own object.
        obj: The object that this rank contributes.
        group: The group; None is the default group.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        IndexError: The list is too short for the ranks of the group.

    Example:
        >>> names = [None, None]
        >>> dist.all_gather_object(names, f"worker {rank}")
        >>> names
        ['worker 0', 'worker 1']
    """
    call = begin(ALL_GATHER, "all_gather_object", group, None, safe)
    if call is None:
        return
    message = call.refusal or pack(call, obj)
    own = header_of(call.kind, message, 1, ROOM)
    headers = exchange(call, message, own, ON_ALL, KIND_END)
    put_all(call, object_list, contents_of(call, all_gather_rest, message, headers))


def contents_of(
    call: Call, rest: Callable[..., Any], message: Message, headers: list[bytes]
) -> list[tuple[Any, list[Any]]]:
    """Returns the stream and buffers of each rank, which are in the headers unless some
    rank has more than they have room for."""
    streams = [stream_on(header) for header in headers]
    if None in streams:
        found: list[tuple[Any, list[Any]]] = moved(call, rest, message, headers)
        return found
    return [(stream, NO_BUFFERS) for stream in streams]


def put_all(call: Call, object_list: list[Any], got: list[tuple[Any, Any]]) -> None:
    """Loads the objects into the list; `got` has (stream, buffers) of each rank."""
    count, problem = length_of(call, "object_list", object_list, True)
    if problem.error is not None:
        raise problem.error
    if count < call.size:
        raise IndexError(
            f"{call.where()}: a list of {count} is too short for the objects of "
            f"{call.size} ranks"
        )
    for rank, (stream, buffers) in enumerate(got):
        object_list[rank] = loaded(call, rank, stream, buffers)


def gather_message(call: Call, obj: Any, outputs: Any, is_root: bool) -> Message:
    """Returns this rank's message for the root, or why it has none."""
    if call.refusal is not None:
        return call.refusal
    if outputs is not None:
        count, problem = length_of(call, "object_gather_list", outputs, is_root)
        if problem.error is not None:
            return problem
    has_list = outputs is not None and count > 0
    if is_root == has_list:
        return pack(call, obj)
    return failure(
        ValueError(
            "Argument ``gather_list`` must be specified on destination rank."
            if is_root
            else "Argument ``gather_list`` must NOT be specified "
            "on non-destination ranks."
        )
    )


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Collects an object of each rank in a list, on one rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        obj: The object that this rank contributes.
        object_gather_list: On the destination the output, a list with a place for each
            rank of the group; None on the other ranks.
        dst: The global rank of the destination, 0 by default.
        group: The group; None is the default group.
        group_dst: The rank of the destination in `group`, instead of `dst`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        ValueError: The list is missing on the destination or given elsewhere, where the
            other ranks raise DistBackendError; or the destination is not a member of
            the group.
        IndexError: The list is too short for the ranks of the group.

    Example:
        >>> found = [None, None] if rank == 0 else None
        >>> dist.gather_object({"rank": rank}, found, dst=0)
        >>> if rank == 0:
        ...     print(found)
        [{'rank': 0}, {'rank': 1}]
    """
    root = or_first(group, dst, group_dst)
    call = begin(GATHER, "gather_object", group, root, safe)
    if call is None:
        return
    is_root = call.rank == call.root
    message = gather_message(call, obj, object_gather_list, is_root)
    own = header_of(call.kind, message, 1, ROOM)
    headers = exchange(call, message, own, ON_ALL, KIND_END)
    got = contents_of(call, gather_rest, message, headers)
    if object_gather_list is not None and is_root:
        put_all(call, object_gather_list, got)


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: Sequence[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
    *,
    safe: bool | None = None,
) -> None:
    """Gives each rank one object of a list of one rank.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        scatter_object_output_list: The output, a list of at least one element: its
            first is replaced.
        scatter_object_input_list: On the source the objects, one for each rank of the
            group; ignored on the other ranks.
        src: The global rank of the source, 0 by default.
        group: The group; None is the default group.
        group_src: The rank of the source in `group`, instead of `src`.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        ValueError: The input list is missing on the source or has another length, where
            the other ranks raise DistBackendError; the output list is empty; or the
            source is not a member of the group.

    Example:
        >>> own = [None]
        >>> dist.scatter_object_list(own, ["even", "odd"] if rank == 0 else None, src=0)
        >>> own == [["even", "odd"][rank]]
        True
    """
    root = or_first(group, src, group_src)
    call = begin(SCATTER, "scatter_object_list", group, root, safe)
    if call is None:
        return
    messages, problem = scatter_messages(
        call, scatter_object_output_list, scatter_object_input_list
    )
    own = scatter_header(call, messages, problem)
    sizes = (HEAD.size, FULL + ENTRY.size * call.size)
    headers = exchange(call, problem, own, sizes, KIND_END)
    header = Header(headers[call.root])
    entries = [
        ENTRY.unpack_from(header.body, rank * ENTRY.size) for rank in range(call.size)
    ]
    if header.size > ROOM or header.parts:
        stream, buffers = moved(call, scatter_rest, messages, header, entries)
    else:
        stream, buffers = scattered(call, header, entries), NO_BUFFERS
    output = loaded(call, call.root, stream, buffers)
    scatter_object_output_list[0] = output


def scatter_messages(
    call: Call, outputs: Any, inputs: Sequence[Any] | None
) -> tuple[list[Message], Message]:
    """Returns a message for each rank, on the source; and the failure, if there is
    one."""
    if call.refusal is not None:
        return [], call.refusal
    if not isinstance(outputs, list) or not outputs:
        return [], failure(
            ValueError(
                "Expected argument scatter_object_output_list to be a list of size at "
                "least 1."
            )
        )
    if call.rank != call.root:
        return [], NOTHING
    if inputs is None:
        text = "source rank must provide non-None scatter_object_input_list"
        return [], failure(ValueError(text))
    count, problem = length_of(call, "scatter_object_input_list", inputs)
    if problem.error is not None:
        return [], problem
    if count != call.size:
        return [], failure(
            ValueError(
                f"{call.where()}: the input list has {count} objects for {call.size} "
                "ranks"
            )
        )
    messages = [pack(call, item) for item in inputs]
    failed = (message for message in messages if message.error is not None)
    return messages, next(failed, NOTHING)


def scatter_header(call: Call, messages: list[Message], problem: Message) -> bytes:
    """Returns the source's header: sizes and parts of all messages, then the streams if
    they fit."""
    if call.rank != call.root or problem.error is not None:
        return header_of(call.kind, problem, 0, ROOM if call.rank == call.root else 0)
    table = b"".join(
        ENTRY.pack(len(message.stream), len(message.parts)) for message in messages
    )
    streams = b"".join(message.stream for message in messages)
    whole = Message(streams, max((message.parts for message in messages), key=len))
    header = header_of(call.kind, whole, call.size, ROOM)
    return header[: HEAD.size] + table + header[HEAD.size :]
