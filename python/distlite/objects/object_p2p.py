# SPDX-License-Identifier: BSD-3-Clause
"""Objects from one rank to another.

    sender                              receiver
    header (small objects are on it)  ->  does it fit: safe mode, length of the list?
    stream, parts                   ->

Nothing goes back: ranks may send to each other before they receive, and what a rank
receives from another is always the beginning or the rest of a list.  A receiver that
refuses a list takes all of it, so that the next one begins with its header.  All have a
tag of their own: arrays do not mix with them.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .._C import DistBackendError, ProcessGroup, _kept_call
from ..groups.dispatch import global_rank
from .object_call import (
    FAILED,
    MAGIC,
    RECV,
    SEND,
    TAG,
    Call,
    Header,
    begin,
    lengths_differ,
    message_of,
    modes_differ,
)
from .object_collectives import loaded, moved
from .object_message import length_of
from .object_transfer import put_rest, take_rest

__all__ = ["recv_object_list", "send_object_list"]


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
    """Sends a list of objects to one rank.

    As with `send`, the call waits for the receiver's `recv_object_list` only if the
    objects are large.

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: The objects. The receiver calls `recv_object_list` with a list of
            the same length.
        dst: The global rank of the receiver.
        group: The group; None is the default group.
        device: Ignored; part of torch's signature.
        group_dst: The rank of the receiver in `group`, instead of `dst`.
        use_batch: Ignored; part of torch's signature.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Raises:
        TypeError: An object of this rank is not data, in safe mode; otherwise what
            pickling raises. The receiver raises DistBackendError.
        ValueError: The receiver is this rank itself, or is not a member of the group.
        DistBackendError: The receiver has ended, or did not call `recv_object_list` in
            time.

    Example:
        >>> if rank == 0:
        ...     dist.send_object_list(["step", 3], dst=1)
        ... else:
        ...     received = [None, None]
        ...     source = dist.recv_object_list(received, src=0)
        ...     print(source, received)
        0 ['step', 3]
    """
    name = "send_object_list"
    call = _kept_call(name, group, dst, group_dst, safe) or begin(
        SEND, name, group, (dst, group_dst), safe
    )
    if call is None:
        return
    check_peer(call, "destination")
    count, problem = length_of(call, "object_list", object_list)
    found = call.exchange(object_list, count, problem)
    if type(found) is list:
        return
    message = message_of(found[0])
    if message.error is not None:
        raise message.error
    moved(call, put_rest, message, TAG)


def check_peer(call: Call, end: str) -> None:
    """Refuses this rank itself as the peer."""
    if call.root == call.rank:
        raise ValueError(
            f"Invalid {end} rank: {end} rank should not be the same as the rank of the "
            "current process."
        )


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

    Objects are pickled, and loading a pickle can run any code; see safe mode.

    Args:
        object_list: The output, a list of the length of the sender's, whose elements
            are replaced.
        src: The global rank of the sender; this or `group_src` is required.
        group: The group; None is the default group.
        device: Ignored; part of torch's signature.
        group_src: The rank of the sender in `group`, instead of `src`.
        use_batch: Ignored; part of torch's signature.
        safe: Whether to send data only; None: what `set_safe_objects` has set.

    Returns:
        The global rank of the sender; -1 on a process that is not a member of the
        group.

    Raises:
        TypeError: `object_list` is not a list. Nothing has been received.
        ValueError: The sender is this rank itself, or is not a member of the group.
        DistBackendError: The sender failed or did not send in time; its list has
            another length or another `safe`; or the objects cannot be loaded. The
            sender does not learn of this.

    Example:
        >>> if rank == 0:
        ...     dist.send_object_list(["step", 3], dst=1)
        ... else:
        ...     received = [None, None]
        ...     source = dist.recv_object_list(received, src=0)
        ...     print(source, received)
        0 ['step', 3]
    """
    name = "recv_object_list"
    call = _kept_call(name, group, src, group_src, safe) or begin(
        RECV, name, group, (src, group_src), safe
    )
    if call is None:
        return -1
    check_peer(call, "source")
    length, problem = length_of(call, "object_list", object_list, True)
    if problem is not None and problem.error is not None:
        raise problem.error
    found = call.exchange(None, length, None)
    if type(found) is list:
        (objects,) = found
    else:
        objects = take_objects(call, Header(found[1][0]), length)
    for i, item in enumerate(objects):
        object_list[i] = item
    return global_rank(call.group, call.root)


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
        stream, buffers = moved(call, take_rest, header, call.root, TAG)
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
