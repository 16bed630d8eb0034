# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects, and messages.

Each begins with blocks, in which a rank describes its objects to those that take them,
or tells them that it failed, so that none waits for data that will not come. Small
objects are in the block itself, and most calls with them are made in C
(csrc/python/objects/object_functions.c); larger data follow, a large array directly
from the sender's memory into the receiver's: first the streams, then the first part of
each rank, the second, and so on.

What the ranks know from the blocks decides how.  After an all_gather and a broadcast
they all know the same, and move each stream and part by a collective.  So they do after
a scatter, whose blocks say whether streams follow, of all ranks then: `parts` is 0 if
nothing follows, otherwise one more than the most parts of a rank, and `count` is the
parts of the rank itself.  In a gather only the destination hears of all ranks, so that
the others send it messages.

In a message nothing goes back: ranks may send to each other before they receive, and
what a rank receives from another is always the beginning or the rest of a list.  A
receiver that refuses a list takes all of it, so that the next one begins with its
header.  All have a tag of their own: arrays do not mix with them.

Objects are pickled or, in safe mode and if they are small and plain, encoded as data,
see safe_codec.py; object_call.py says who may send pickles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from .. import _C
from .._C import (
    _OBJECT_ROOM as ROOM,
    _OBJECT_TAG as TAG,
    DistBackendError,
    DistError,
    ProcessGroup,
    all_gather,
    all_gather_object,
    broadcast,
    broadcast_object_list,
    gather_object,
    recv,
    recv_object_list,
    scatter_object_list,
    scatter_v,
    send,
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
    Call,
    Header,
    begin_call,
    headers_of,
    lengths_differ,
    message_of,
    messages_of,
    modes_differ,
    raise_failure,
    set_safe_objects,
)
from .object_message import (
    Message,
    empty,
    failure,
    length_of,
    load,
    memory_of,
    part_sizes,
)

__all__ = [
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
    "set_safe_objects",
]

# The stream and the parts of one rank.
Contents = tuple[Any, list[Any]]


def loaded(call: Call, source: int, stream: Any, buffers: list[Any]) -> Any:
    """Loads what `source` sent."""
    try:
        return load(stream, buffers, call.kind)
    except Exception as error:
        call.cannot_load(source, error)


def move_or_abort(call: Call, move: Callable[..., Any], *arguments: Any) -> Any:
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
    call = begin_call(op, name, group, root, safe)
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
    return found if type(found) is list else objects_of_list(call, count, *found)


def objects_of_list(
    call: Call, count: int, sent: Any, blocks: list[bytes]
) -> list[Any]:
    """Returns the objects after blocks that are not all of them, or raises."""
    if call.op == RECV:
        return [take_objects(call, Header(blocks[0]), count)]
    if call.op == SEND:
        message = message_of(sent)
        if message.error is not None:
            raise message.error
        move_or_abort(call, put_rest, message, TAG)
        return []
    message, headers, contents = move_or_abort(call, move_rest, count, sent, blocks)
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
    given = messages if call.op == SCATTER else message
    return message, headers, _RESTS[call.op](call, given, headers)


def broadcast_rest(
    call: Call, message: Message, headers: list[Header]
) -> list[Contents]:
    """Returns the root's stream and parts; nothing of use on the root itself."""
    is_root = call.rank == call.root
    header = headers[0]

    def cast(own: Any, size: int) -> Any:
        memory = memory_of(own) if is_root else empty(size)
        broadcast(memory, group=call.group, group_src=call.root)
        return memory

    stream = header.stream()
    if stream is None:
        stream = cast(message.stream, header.size)
    sizes = part_sizes(stream, header.parts)
    owns = message.parts if is_root else [None] * header.parts
    parts = [cast(own, size) for own, size in zip(owns, sizes, strict=True)]
    return [(stream, parts)]


def all_gather_rest(
    call: Call, message: Message, headers: list[Header]
) -> list[Contents]:
    """Returns the streams and parts by rank."""

    def collect(own: Any, sizes: list[int]) -> list[Any]:
        outputs = [empty(size) for size in sizes]
        all_gather(outputs, memory_of(own), call.group)
        return outputs

    streams: list[Any] = [header.stream() for header in headers]
    if None in streams:
        sizes = [
            header.size if stream is None else 0
            for header, stream in zip(headers, streams, strict=True)
        ]
        followed = collect(message.stream if sizes[call.rank] else b"", sizes)
        for source, stream in enumerate(followed):
            streams[source] = stream if sizes[source] else streams[source]
    tables = [
        part_sizes(stream, header.parts)
        for stream, header in zip(streams, headers, strict=True)
    ]
    parts: list[list[Any]] = [[] for _ in headers]
    for i in range(max(header.parts for header in headers)):
        sizes = [table[i] if i < len(table) else 0 for table in tables]
        own = message.parts[i] if i < len(message.parts) else b""
        for source, part in enumerate(collect(own, sizes)):
            if i < headers[source].parts:
                parts[source].append(part)
    return list(zip(streams, parts, strict=True))


def gather_rest(call: Call, message: Message, headers: list[Header]) -> list[Contents]:
    """Returns the streams and parts by rank, on the root."""
    if call.rank != call.root:
        put_rest(call, message, _C._GATHER_TAG)
        return []
    return [
        (message.stream, [_copy(part) for part in message.parts])
        if rank == call.rank
        else take_rest(call, header, rank, _C._GATHER_TAG)
        for rank, header in enumerate(headers)
    ]


def _copy(part: Any) -> Any:
    copied = empty(len(part))
    copied[:] = memory_of(part)
    return copied


def put_rest(call: Call, message: Message, tag: int) -> None:
    """Sends what has no room behind the header to the root, or the receiver."""
    if len(message.stream) > ROOM:
        send(memory_of(message.stream), group=call.group, tag=tag, group_dst=call.root)
    for part in message.parts:
        if len(part):
            send(memory_of(part), group=call.group, tag=tag, group_dst=call.root)


def take_rest(call: Call, header: Header, rank: int, tag: int) -> Contents:
    """Receives from `rank` what has no room behind the header."""

    def take(size: int) -> Any:
        memory = empty(size)
        if size:
            recv(memory, group=call.group, tag=tag, group_src=rank)
        return memory

    stream: Any = header.stream()
    if stream is None:
        stream = take(header.size)
    return stream, [take(size) for size in part_sizes(stream, header.parts)]


def scatter_rest(
    call: Call, messages: list[Message], headers: list[Header]
) -> list[Contents]:
    """Returns the stream and the parts of this rank.  On the source, `messages` are
    those for all ranks."""
    header = headers[0]
    is_source = call.rank == call.root
    if not header.parts:
        return [(header.stream(), [])]

    def deal(owns: list[Any], size: int) -> Any:
        output = empty(size)
        inputs = [memory_of(own) for own in owns] if is_source else None
        scatter_v(output, inputs, group=call.group, group_src=call.root)
        return output

    stream = deal([message.stream for message in messages], header.size)
    sizes = part_sizes(stream, header.count)
    buffers = []
    for i in range(header.parts - 1):
        owns = [
            message.parts[i] if i < len(message.parts) else b"" for message in messages
        ]
        part = deal(owns, sizes[i] if i < header.count else 0)
        buffers += [part] if i < header.count else []
    return [(stream, buffers)]


_RESTS: dict[int, Callable[..., list[Contents]]] = {
    BROADCAST: broadcast_rest,
    ALL_GATHER: all_gather_rest,
    GATHER: gather_rest,
    SCATTER: scatter_rest,
}


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
        stream, buffers = move_or_abort(call, take_rest, header, call.root, TAG)
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
