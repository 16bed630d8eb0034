# SPDX-License-Identifier: BSD-3-Clause
"""Sockets that a store will serve on, bound before any rank starts.

A port that is only chosen can be taken by somebody else before it is used; one that is
bound cannot.
"""

from __future__ import annotations

import socket

LOOPBACK = ("localhost", "::1")


def bind_master(address: str, port: int) -> socket.socket:
    """For the store of rank 0, not listening yet: a program that knows nothing of the
    socket that it was handed can still bind the port itself, which SO_REUSEADDR allows
    as long as nobody listens, while the kernel gives it to nobody who asks for any.

    OSError, naming the place, if it cannot be had.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(
        address, port, type=socket.SOCK_STREAM
    )[0]
    master = socket.socket(family, kind, protocol)
    try:
        master.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        master.bind(where)
    except OSError as error:
        master.close()
        raise OSError(
            error.errno, f"cannot listen on {address}:{port}: {error.strerror}"
        ) from None
    return master


def listen_for_nodes(address: str, port: int) -> socket.socket:
    """For the store of a launcher that other nodes come to; OSError if `address` is not
    this host's.

    A host's own name is often an alias of its loopback, where other nodes do not come
    through: unless loopback was meant, it listens on every address.
    """
    bind_master(address, 0).close()
    if address in LOOPBACK or address.startswith("127."):
        listener = bind_master(address, port)
        listener.listen()
        return listener
    if socket.has_dualstack_ipv6():
        everywhere = socket.AF_INET6
        return socket.create_server(("", port), family=everywhere, dualstack_ipv6=True)
    return socket.create_server(("", port))
