# SPDX-License-Identifier: BSD-3-Clause
"""Transfer of what does not fit in the headers: first the streams, then the first part
of each rank, the second, and so on, each in a collective of its own.

Every rank knows from the headers how many there will be, and makes them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._C import all_gather, broadcast, gather_v, scatter_v
from .object_call import Call, Header
from .object_message import Message, empty, memory_of, part_sizes

# The stream and the parts of one rank.
Contents = tuple[Any, list[Any]]

__all__ = [
    "all_gather_rest",
    "broadcast_rest",
    "gather_rest",
    "scatter_rest",
]


def broadcast_rest(call: Call, message: Message, headers: list[Header]) -> Contents:
    """Returns the root's stream and parts; nothing of use on the root itself."""
    is_root = call.rank == call.root
    header = headers[call.root]

    def cast(own: Any, size: int) -> Any:
        memory = memory_of(own) if is_root else empty(size)
        broadcast(memory, group=call.group, group_src=call.root)
        return memory

    stream = header.stream()
    if stream is None:
        stream = cast(message.stream, header.size)
    sizes = part_sizes(stream, header.parts)
    owns = message.parts if is_root else [None] * header.parts
    return stream, [cast(own, size) for own, size in zip(owns, sizes, strict=True)]


def all_gather_rest(
    call: Call, message: Message, headers: list[Header]
) -> list[Contents]:
    """Returns the streams and parts by rank."""

    def collect(own: Any, sizes: Sequence[int]) -> list[Any]:
        outputs = [empty(size) for size in sizes]
        all_gather(outputs, memory_of(own), call.group)
        return outputs

    return _collect_all(call.rank, message, headers, collect, True)


def gather_rest(call: Call, message: Message, headers: list[Header]) -> list[Contents]:
    """Returns the streams and parts by rank on the root; on other ranks the result has
    no meaning."""
    is_root = call.rank == call.root

    def collect(own: Any, sizes: Sequence[int]) -> list[Any]:
        outputs = [empty(size) for size in sizes] if is_root else []
        gather_v(
            memory_of(own),
            outputs if is_root else None,
            group=call.group,
            group_dst=call.root,
        )
        return outputs

    return _collect_all(call.rank, message, headers, collect, is_root)


def _collect_all(
    rank: int, message: Message, headers: list[Header], collect: Any, is_taker: bool
) -> list[Contents]:
    streams: list[Any] = [header.stream() for header in headers]
    if None in streams:
        sizes = [
            header.size if stream is None else 0
            for header, stream in zip(headers, streams, strict=True)
        ]
        own = message.stream if sizes[rank] else b""
        followed = collect(own, sizes)
        for source, stream in enumerate(followed):
            streams[source] = stream if sizes[source] else streams[source]
    rounds = max(header.parts for header in headers)
    parts: list[list[Any]] = [[] for _ in headers]
    tables: list[tuple[int, ...]] = [()] * len(headers)
    if is_taker:
        tables = [
            part_sizes(stream, header.parts)
            for stream, header in zip(streams, headers, strict=True)
        ]
    for i in range(rounds):
        sizes = [table[i] if i < len(table) else 0 for table in tables]
        own = message.parts[i] if i < len(message.parts) else b""
        for source, part in enumerate(collect(own, sizes)):
            if i < headers[source].parts:
                parts[source].append(part)
    return list(zip(streams, parts, strict=True))


def scatter_rest(
    call: Call, messages: list[Message], entries: Sequence[tuple[Any, int]]
) -> Contents:
    """Receives the data of this rank.  `entries` are, of each rank, its stream, or the
    size of the stream that follows; and the number of its parts."""
    stream, count = entries[call.rank]

    def deal(owns: list[Any], size: int) -> Any:
        output = empty(size)
        inputs = [memory_of(own) for own in owns] if messages else None
        scatter_v(output, inputs, group=call.group, group_src=call.root)
        return output

    if type(stream) is int:
        stream = deal([message.stream for message in messages], stream)
    sizes = part_sizes(stream, count)
    buffers = []
    for i in range(max(parts for _, parts in entries)):
        owns = [
            message.parts[i] if i < len(message.parts) else b"" for message in messages
        ]
        part = deal(owns, sizes[i] if i < count else 0)
        buffers += [part] if i < count else []
    return stream, buffers
