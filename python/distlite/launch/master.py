# SPDX-License-Identifier: BSD-3-Clause
"""Sockets that a store will serve on, bound before any rank starts.

A port that is only chosen can be taken by somebody else before it is used; one that is
bound cannot.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def bind_master(address: str, port: int) -> socket.socket:
    """For the store of rank 0, not listening yet: a program that knows nothing of the
    socket that it was handed can still bind the port itself, which SO_REUSEADDR allows
    as long as nobody listens, while the kernel gives it to nobody who asks for any.

    OSError, naming the place, if it cannot be had.
    """
    with _naming(address, port):
        return _bind(address, port)


def check_address(address: str, port: int) -> None:
    """OSError, naming the place, if `address` is not this host's."""
    with _naming(address, port):
        _bind(address, 0).close()


def await_name(address: str, seconds: float) -> None:
    """Return when `address` can be looked up, or the time is over: a name may become
    known only while its host starts, as in Kubernetes."""
    deadline = time.monotonic() + seconds
    pause = 0.05
    while True:
        try:
            socket.getaddrinfo(address, 0, type=socket.SOCK_STREAM)
            return
        except (socket.gaierror, UnicodeError) as error:
            if isinstance(error, UnicodeError) or time.monotonic() >= deadline:
                return
            if pause == 0.05:
                text = f"{address}: {error.strerror}: trying again for {seconds:g} s"
                print(f"distlite: {text}", file=sys.stderr, flush=True)
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(2 * pause, 1.0)


def listen_for_nodes(address: str, port: int) -> socket.socket:
    """For the store of a launcher that other nodes come to; OSError, naming the place,
    if `address` is not this host's.

    A host's own name is often an alias of its loopback, where other nodes do not come
    through: unless a number says loopback, it listens on every address.
    """
    check_address(address, port)
    with _naming(address, port):
        if address == "::1" or address.startswith("127."):
            listener = _bind(address, port)
            listener.listen()
            return listener
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True
            )
        return socket.create_server(("", port))


def _bind(address: str, port: int) -> socket.socket:
    family, kind, protocol, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM
    )[0]
    master = socket.socket(family, kind, protocol)
    try:
        master.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        master.bind(where)
    except OSError:
        master.close()
        raise
    return master


@contextlib.contextmanager
def _naming(address: str, port: int) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError) as error:
        # Names that nobody knows have numbers of their own, below 0.
        number = getattr(error, "errno", None) or 0
        known = getattr(error, "strerror", None) or "not a host's name"
        reason = os.strerror(number) if number > 0 else known
        text = f"cannot listen on {address}:{port}: {reason}"
        raise OSError(number, text) from None
