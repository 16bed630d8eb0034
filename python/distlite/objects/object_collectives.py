# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects.

Each begins with blocks, in which a rank describes its objects to those that take them,
or tells them that it failed, so that none waits for data that will not come. Small
objects are in the block itself; larger data follow, a large array directly from the
sender's memory into the receiver's.

Objects are pickled, or in safe mode encoded as data, see safe_encode.py; object_call.py
says who may send pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._C import DistError, ProcessGroup, _kept_call
from .object_call import (
    ALL_GATHER,
    BROADCAST,
    FAILED,
    GATHER,
    SCATTER,
    Call,
    Header,
    begin,
    headers_of,
    message_of,
    messages_of,
    raise_failure,
    set_safe_objects,
)
from .object_message import Message, failure, length_of, load
from .object_transfer import (
    Contents,
    all_gather_rest,
    broadcast_rest,
    gather_rest,
    scatter_rest,
)

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "scatter_object_list",
    "set_safe_objects",
]


def loaded(call: Call, source: int, stream: Any, buffers: list[Any]) -> Any:
    """Loads what `source` sent."""
    try:
        return load(stream, buffers, call.kind)
    except Exception as error:
        call.cannot_load(source, error)


def moved(call: Call, move: Callable[..., Any], *arguments: Any) -> Any:
    """Carries out the rest of a collective.  After the headers the other ranks rely on
    this one, so an error that they do not know of aborts the group.  So does one of the
    messages of a gather, of which the next gather would take those that are left."""
    try:
        return move(call, *arguments)
    except DistError:
        if call.op == GATHER:
            call.group.abort()
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
            data, in safe mode; otherwise what pickling raises. The ranks that it was
            for raise DistBackendError.
        DistBackendError: A rank failed or did not call it in time; the lists have
            different lengths; or an object could not be sent or loaded. A source that
            does not wait for the other ranks raises it in its next call in the group.
            An object that cannot be loaded is an error on that rank only.
        ValueError: The source is not a member of the group.

    Example:
        >>> settings = [{"rate": 0.1}, "adam"] if rank == 0 else [None, None]
        >>> dist.broadcast_object_list(settings, src=0)
        >>> settings
        [{'rate': 0.1}, 'adam']
    """
    name = "broadcast_object_list"
    call = _kept_call(name, group, src, group_src, safe) or begin(
        BROADCAST, name, group, (src, group_src), safe
    )
    if call is None:
        return
    is_root = call.rank == call.root
    if type(object_list) is list:
        count, problem = len(object_list), None
    else:
        count, problem = length_of(call, "object_list", object_list, not is_root)
    for objects in exchanged(call, object_list, count, problem):
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
    name = "all_gather_object"
    call = _kept_call(name, group, None, None, safe) or begin(
        ALL_GATHER, name, group, None, safe
    )
    if call is not None:
        put_all(call, object_list, exchanged(call, obj))


def exchanged(
    call: Call, value: Any, count: int = 1, message: Message | None = None
) -> list[Any]:
    """Returns the objects that are for this rank."""
    found = call.exchange(value, count, message)
    return found if type(found) is list else settled(call, count, *found)


def settled(call: Call, count: int, sent: Any, blocks: list[bytes]) -> list[Any]:
    """Returns the objects after blocks that are not all of them, or raises."""
    message, headers, contents = moved(call, move_rest, count, sent, blocks)
    raise_failure(call, message, headers)
    if call.op == BROADCAST and call.rank == call.root:
        return []
    sources = range(call.size) if call.hears_all() else [call.root]
    return [
        loaded(call, source, stream, buffers)
        for source, (stream, buffers) in zip(sources, contents, strict=False)
    ]


def move_rest(
    call: Call, count: int, sent: Any, blocks: list[bytes]
) -> tuple[Message, list[Header], list[Contents]]:
    """Returns this rank's message, the headers, and what follows these."""
    messages = messages_of(sent) if type(sent) is list else [message_of(sent)]
    message = messages[0]
    headers = headers_of(call, message, count, blocks)
    failed = [header for header in headers if header.kind & FAILED]
    # After an all_gather all ranks know who failed, and send nothing more.
    if call.op == ALL_GATHER and failed:
        return message, headers, []
    rests: dict[int, Callable[..., list[Contents]]] = {
        BROADCAST: broadcast_rest,
        ALL_GATHER: all_gather_rest,
        GATHER: gather_rest,
        SCATTER: scatter_rest,
    }
    given = messages if call.op == SCATTER else message
    return message, headers, rests[call.op](call, given, headers)


def put_all(call: Call, object_list: list[Any], objects: list[Any]) -> None:
    """Puts the objects into the list."""
    if type(object_list) is list:
        count, problem = len(object_list), None
    else:
        count, problem = length_of(call, "object_list", object_list, True)
    if problem is not None and problem.error is not None:
        raise problem.error
    if count < call.size:
        raise IndexError(
            f"{call.where()}: a list of {count} is too short for the objects of "
            f"{call.size} ranks"
        )
    for rank, item in enumerate(objects):
        object_list[rank] = item


def gather_failure(call: Call, outputs: Any, is_root: bool) -> Message | None:
    """Returns why this rank has no message for the root, if it has none."""
    count = 0
    if outputs is not None:
        count, problem = length_of(call, "object_gather_list", outputs, is_root)
        if problem is not None:
            return problem
    if is_root == (count > 0):
        return None
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
            destination raises DistBackendError; or the destination is not a member of
            the group.
        IndexError: The list is too short for the ranks of the group.

    Example:
        >>> found = [None, None] if rank == 0 else None
        >>> dist.gather_object({"rank": rank}, found, dst=0)
        >>> if rank == 0:
        ...     print(found)
        [{'rank': 0}, {'rank': 1}]
    """
    name = "gather_object"
    call = _kept_call(name, group, dst, group_dst, safe) or begin(
        GATHER, name, group, (dst, group_dst), safe
    )
    if call is None:
        return
    is_root = call.rank == call.root
    problem = None
    if is_root or object_gather_list is not None:
        problem = gather_failure(call, object_gather_list, is_root)
    got = exchanged(call, obj, 1, problem)
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
    name = "scatter_object_list"
    call = _kept_call(name, group, src, group_src, safe) or begin(
        SCATTER, name, group, (src, group_src), safe
    )
    if call is None:
        return
    inputs, problem = scatter_inputs(
        call, scatter_object_output_list, scatter_object_input_list
    )
    (scatter_object_output_list[0],) = exchanged(call, inputs, 1, problem)


def scatter_inputs(
    call: Call, outputs: Any, inputs: Sequence[Any] | None
) -> tuple[tuple[Any, ...], Message | None]:
    """Returns an object for each rank, on the source; and the failure, if there is
    one."""
    if not isinstance(outputs, list) or not outputs:
        return (), failure(
            ValueError(
                "Expected argument scatter_object_output_list to be a list of size at "
                "least 1."
            )
        )
    if call.rank != call.root:
        return (), None
    if inputs is None:
        text = "source rank must provide non-None scatter_object_input_list"
        return (), failure(ValueError(text))
    count, problem = length_of(call, "scatter_object_input_list", inputs)
    if problem is not None:
        return (), problem
    if count != call.size:
        return (), failure(
            ValueError(
                f"{call.where()}: the input list has {count} objects for {call.size} "
                "ranks"
            )
        )
    return tuple(inputs), None
