# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects, and messages.

Each begins with blocks, in which a rank describes its objects to those that take them,
or tells them that it failed, so that none waits for data that will not come. Small
objects are in the block itself, and most calls with them are made in C
(csrc/python/objects/object_functions.c); larger data follow, a large array directly
from the sender's memory into the receiver's.

In a message nothing goes back: ranks may send to each other before they receive, and
what a rank receives from another is always the beginning or the rest of a list.  A
receiver that refuses a list takes all of it, so that the next one begins with its
header.  All have a tag of their own: arrays do not mix with them.

Objects are pickled, or in safe mode encoded as data, see safe_encode.py; object_call.py
says who may send pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .._C import (
    DistBackendError,
    DistError,
    ProcessGroup,
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from ..groups.world import world
from .object_call import (
    ALL_GATHER,
    BROADCAST,
    FAILED,
    GATHER,
    MAGIC,
    RECV,
    SCATTER,
    SEND,
    TAG,
    Call,
    Header,
    begin,
    headers_of,
    lengths_differ,
    message_of,
    messages_of,
    modes_differ,
    raise_failure,
    set_safe_objects,
)
from .object_message import Message, failure, length_of, load

if TYPE_CHECKING:
    from .object_transfer import Contents

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "call_with_list",
    "exchanged",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
    "set_safe_objects",
    "settled",
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


def call_with_list(
    op: int,
    name: str,
    objects: Any,
    value: Any,
    group: ProcessGroup | None,
    rank: int | None,
    group_rank: int | None,
    safe: bool | None,
) -> int | None:
    """Makes a call that csrc/python/objects/object_functions.c leaves to Python:
    `objects` is its list of results, or of what it sends, and `value` what it sends.
    Returns what that function does."""
    root = None if op == ALL_GATHER else (rank, group_rank)
    call = begin(op, name, group, root, safe)
    if call is not None:
        value, count, problem = checked(call, objects, value)
        put(call, objects, exchanged(call, value, count, problem))
    if op != RECV:
        return None
    if call is None:
        return -1
    info = world.groups.get(call.group)
    return call.root if info is None else info.ranks[call.root]


def checked(call: Call, objects: Any, value: Any) -> tuple[Any, int, Message | None]:
    """Returns what this rank sends, how many objects its list has, and why it cannot
    take part, if so."""
    is_root = call.rank == call.root
    if call.op == ALL_GATHER:
        return value, 1, None
    if call.op == GATHER:
        return value, 1, gather_failure(call, objects, is_root)
    if call.op == SCATTER:
        return scatter_inputs(call, objects, value)
    if call.op != BROADCAST and is_root:
        end = "destination" if call.op == SEND else "source"
        raise ValueError(
            f"Invalid {end} rank: {end} rank should not be the same as the rank of the "
            "current process."
        )
    is_output = call.op == RECV or (call.op == BROADCAST and not is_root)
    count, problem = length_of(call, "object_list", objects, is_output)
    if call.op == RECV and problem is not None and problem.error is not None:
        raise problem.error
    return objects, count, problem


def exchanged(
    call: Call, value: Any, count: int = 1, message: Message | None = None
) -> list[Any]:
    """Returns the objects that are for this rank."""
    found = call.exchange(value, count, message)
    return found if type(found) is list else settled(call, count, *found)


def settled(call: Call, count: int, sent: Any, blocks: list[bytes]) -> list[Any]:
    """Returns the objects after blocks that are not all of them, or raises."""
    if call.op == RECV:
        return [take_objects(call, Header(blocks[0]), count)]
    if call.op == SEND:
        message = message_of(sent)
        if message.error is not None:
            raise message.error
        moved(call, put_rest, message)
        return []
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
    from . import object_transfer

    rests: dict[int, Callable[..., list[Contents]]] = {
        BROADCAST: object_transfer.broadcast_rest,
        ALL_GATHER: object_transfer.all_gather_rest,
        GATHER: object_transfer.gather_rest,
        SCATTER: object_transfer.scatter_rest,
    }
    given = messages if call.op == SCATTER else message
    return message, headers, rests[call.op](call, given, headers)


def put_rest(call: Call, message: Message) -> None:
    """Sends what follows the header of a message."""
    from . import object_transfer

    object_transfer.put_rest(call, message, TAG)


def take_rest(call: Call, header: Header) -> Contents:
    """Returns what follows the header of a message."""
    from . import object_transfer

    return object_transfer.take_rest(call, header, call.root, TAG)


def put(call: Call, objects: Any, found: list[Any]) -> None:
    """Puts what was found into the caller's list."""
    if call.op in (ALL_GATHER, GATHER) and found:
        count, problem = length_of(call, "object_list", objects, True)
        if problem is not None and problem.error is not None:
            raise problem.error
        if count < call.size:
            raise IndexError(
                f"{call.where()}: a list of {count} is too short for the objects of "
                f"{call.size} ranks"
            )
    for items in found if call.op in (BROADCAST, RECV) else [found]:
        for i, item in enumerate(items):
            objects[i] = item


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


def scatter_inputs(
    call: Call, outputs: Any, inputs: Sequence[Any] | None
) -> tuple[tuple[Any, ...], int, Message | None]:
    """As checked(): on the source an object for each rank."""
    if not isinstance(outputs, list) or not outputs:
        text = (
            "Expected argument scatter_object_output_list to be a list of size at "
            "least 1."
        )
    elif call.rank != call.root:
        return (), 1, None
    elif inputs is None:
        text = "source rank must provide non-None scatter_object_input_list"
    else:
        count, problem = length_of(call, "scatter_object_input_list", inputs)
        if problem is not None:
            return (), 1, problem
        if count == call.size:
            return tuple(inputs), 1, None
        text = (
            f"{call.where()}: the input list has {count} objects for {call.size} ranks"
        )
    return (), 1, failure(ValueError(text))


def take_objects(call: Call, header: Header, length: int) -> list[Any]:
    """Returns what follows a header, or raises; bytes that a shorter one does not have
    are zero."""
    if header.magic != MAGIC:
        raise DistBackendError(
            f"{call.where()}: the message from rank {call.root} was written by another "
            "version of distlite"
        )
    if header.kind & FAILED:
        raise DistBackendError(f"{call.where()}: rank {call.root}: {header.text()}")
    stream, buffers = header.stream(), []
    if stream is None or header.parts:
        stream, buffers = moved(call, take_rest, header)
    if call.refusal or header.kind != call.kind or header.count != length:
        refuse_header(call, header, length)
    objects: list[Any] = loaded(call, call.root, stream, buffers)
    return objects


def refuse_header(call: Call, header: Header, length: int) -> NoReturn:
    """Raises the reason why this rank refuses the sender's list."""
    if call.refusal is not None and call.refusal.error is not None:
        raise call.refusal.error
    text = modes_differ(
        {call.root: header.kind, call.rank: call.kind}
    ) or lengths_differ({call.root: header.count, call.rank: length})
    raise DistBackendError(f"{call.where()}: {text}")
