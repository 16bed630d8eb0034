# SPDX-License-Identifier: BSD-3-Clause
"""Transfer of what does not fit in the blocks: first the streams, then the first part
of each rank, the second, and so on.

What the ranks know from the blocks decides how.  After an all_gather and a broadcast
they all know the same, and move each stream and part by a collective.  So they do after
a scatter, whose blocks say whether streams follow, of all ranks then: `parts` is 0 if
nothing follows, otherwise one more than the most parts of a rank, and `count` is the
parts of the rank itself.  In a gather only the destination hears of all ranks, so that
the others send it messages.
"""

from __future__ import annotations

from typing import Any

from .. import _C
from .._C import all_gather, broadcast, recv, scatter_v, send
from .object_call import ROOM, Call, Header
from .object_message import Message, empty, memory_of, part_sizes

# The stream and the parts of one rank.
Contents = tuple[Any, list[Any]]

__all__ = [
    "all_gather_rest",
    "broadcast_rest",
    "gather_rest",
    "put",
    "put_rest",
    "scatter_rest",
    "take",
    "take_rest",
]


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


def put(call: Call, memory: Any, tag: int) -> None:
    """Sends to the call's root, which may be the receiver of a message."""
    send(memory, group=call.group, tag=tag, group_dst=call.root)


def put_rest(call: Call, message: Message, tag: int) -> None:
    """Sends what has no room behind the header."""
    if len(message.stream) > ROOM:
        put(call, memory_of(message.stream), tag)
    for part in message.parts:
        if len(part):
            put(call, memory_of(part), tag)


def take(call: Call, memory: Any, rank: int, tag: int) -> Any:
    """Receives from `rank`, and returns the memory."""
    recv(memory, group=call.group, tag=tag, group_src=rank)
    return memory


def take_rest(call: Call, header: Header, rank: int, tag: int) -> Contents:
    """Receives what has no room behind the header."""
    stream: Any = header.stream()
    if stream is None:
        stream = take(call, empty(header.size), rank, tag)
    sizes = part_sizes(stream, header.parts)
    return stream, [
        take(call, empty(size), rank, tag) if size else empty(0) for size in sizes
    ]


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
