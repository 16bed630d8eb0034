# SPDX-License-Identifier: BSD-3-Clause
"""Objects from one rank to another.

    sender                              receiver
    card (small objects are on it)  ->  does it fit: safe mode, length of the list?
                                    <-  a card that says so, or why not
    stream, parts                   ->

Both sides fail, or none.  All have a tag of their own: arrays do not mix with them.
"""

from __future__ import annotations

from .. import _C
from .._C import DistBackendError, recv, send
from ..groups.world import world
from .object_cards import FAILED, FULL, MAGIC, ROOM, Call, Card, card_of, modes_differ
from .object_collectives import NO_OPERATION, begin, loaded, moved
from .object_message import (
    NOTHING,
    Message,
    empty,
    failure,
    length_of,
    memory_of,
    pack,
    part_sizes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._C import ProcessGroup

__all__ = ["recv_object_list", "send_object_list"]

# A tag that programs hardly use; with backend mpi they cannot use it at all.
TAG = _C._OBJECT_TAG


def send_object_list(
    object_list: list[Any],
    dst: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_dst: int | None = None,
    use_batch: bool = False,
    *,
    safe: bool | None = None,
) -> None:
    """Sends a list of objects to one rank, and returns when they have been received.

    Objects are pickled, and loading a pickle runs code that the sender chose; see safe
    mode.

    Args:
        object_list: The objects. The receiver calls `recv_object_list` with a list of
            the same length.
        dst: The global rank of the receiver.
        group: The group; None is the default group.
        device: Accepted as torch does, and ignored.
        group_dst: The rank of the receiver in `group`, instead of `dst`.
        use_batch: Accepted as torch does, and ignored.
        safe: Whether the objects travel in safe mode; None is the setting of the group,
            see `set_safe_objects`.

    Raises:
        TypeError: An object of this rank is not data, in safe mode. Otherwise, if it
            cannot be pickled, this rank raises what pickling raises. The other ranks
            raise DistBackendError.
        ValueError: The receiver is this rank itself, or is not a member of the group.
        DistBackendError: The receiver failed, refused the list, or did not call
            `recv_object_list` in time.

    Example:
        >>> if rank == 0:
        ...     dist.send_object_list(["step", 3], dst=1)
        ... else:
        ...     received = [None, None]
        ...     source = dist.recv_object_list(received, src=0)
        ...     print(source, received)
        0 ['step', 3]
    """
    call = begin(NO_OPERATION, "send_object_list", group, (dst, group_dst), safe)
    if call is None:
        return
    check_peer(call, "destination")
    count, message = length_of(call, "object_list", object_list)
    message = call.refusal or message
    if message.error is None:
        message = pack(call, list(object_list), True)
    card = card_of(call.kind, message, count, ROOM)
    put(call, memory_of(card))
    if message.error is not None:
        raise message.error
    answer = take_card(call)
    if answer.kind & FAILED:
        raise DistBackendError(f"{call.where()}: rank {call.root}: {answer.text()}")
    moved(call, put_rest, message)


def put(call: Call, memory: Any) -> None:
    send(memory, group=call.group, tag=TAG, group_dst=call.root)


def take(call: Call, memory: Any) -> Any:
    recv(memory, group=call.group, tag=TAG, group_src=call.root)
    return memory


def take_card(call: Call) -> Card:
    """Receives the sender's card; bytes that a shorter one does not have are zero."""
    memory = empty(FULL)
    memory[:] = 0
    card = Card(take(call, memory).tobytes())
    if card.magic != MAGIC:
        raise DistBackendError(
            f"{call.where()}: the message from rank {call.root} was written by another "
            "version "
            "of distlite"
        )
    return card


def check_peer(call: Call, end: str) -> None:
    """Refuses this rank itself as the peer: the card would wait for its own answer."""
    if call.root == call.rank:
        raise ValueError(
            f"Invalid {end} rank: {end} rank should not be the same as the rank of the "
            "current process."
        )


def put_rest(call: Call, message: Message) -> None:
    if len(message.stream) > ROOM:
        put(call, memory_of(message.stream))
    for part in message.parts:
        if len(part):
            put(call, memory_of(part))


def recv_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: Any = None,
    group_src: int | None = None,
    use_batch: bool = False,
    *,
    safe: bool | None = None,
) -> int:
    """Receives a list of objects from one rank.

    Objects are pickled, and loading a pickle runs code that the sender chose; see safe
    mode.

    Args:
        object_list: The output, a list of the length of the sender's, whose elements
            are replaced.
        src: The global rank of the sender. It has to be given, here or as `group_src`.
        group: The group; None is the default group.
        device: Accepted as torch does, and ignored.
        group_src: The rank of the sender in `group`, instead of `src`.
        use_batch: Accepted as torch does, and ignored.
        safe: Whether the objects travel in safe mode; None is the setting of the group,
            see `set_safe_objects`.

    Returns:
        The global rank of the sender; -1 on a process that is not a member of the
        group.

    Raises:
        ValueError: The sender is this rank itself, or is not a member of the group.
        DistBackendError: The sender failed or did not send in time, or the objects
            cannot be loaded.

    Example:
        >>> if rank == 0:
        ...     dist.send_object_list(["step", 3], dst=1)
        ... else:
        ...     received = [None, None]
        ...     source = dist.recv_object_list(received, src=0)
        ...     print(source, received)
        0 ['step', 3]
    """
    call = begin(NO_OPERATION, "recv_object_list", group, (src, group_src), safe)
    if call is None:
        return -1
    check_peer(call, "source")
    card = take_card(call)
    if card.kind & FAILED:
        raise DistBackendError(f"{call.where()}: rank {call.root}: {card.text()}")
    length, answer = length_of(call, "object_list", object_list, True)
    answer = call.refusal or answer
    if answer.error is None:
        answer = answer_to(call, card, length)
    put(call, memory_of(card_of(call.kind, answer, 0, ROOM)))
    if answer.error is not None:
        raise answer.error
    stream, buffers = moved(call, take_rest, card)
    for i, item in enumerate(loaded(call, call.root, stream, buffers)):
        object_list[i] = item
    return global_rank(call)


def answer_to(call: Call, card: Card, length: int) -> Message:
    """Returns the refusal of a card; NOTHING if it is accepted."""
    text = modes_differ({call.root: card.kind, call.rank: call.kind})
    if not text and card.count != length:
        text = (
            f"ranks' lists have different lengths: rank {call.root} {card.count}, rank "
            f"{call.rank} {length}"
        )
    if not text:
        return NOTHING
    return failure(DistBackendError(f"{call.where()}: {text}"), text)


def take_rest(call: Call, card: Card) -> tuple[Any, list[Any]]:
    stream = card.body[: card.size]
    if card.size > ROOM:
        stream = take(call, empty(card.size))
    sizes = part_sizes(stream, card.parts)
    return stream, [take(call, empty(size)) if size else empty(0) for size in sizes]


def global_rank(call: Call) -> int:
    info = world.groups.get(call.group)
    return call.root if info is None else info.ranks[call.root]
