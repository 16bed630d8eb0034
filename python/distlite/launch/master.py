# SPDX-License-Identifier: BSD-3-Clause
"""The socket on which rank 0's store will serve, bound before any rank starts.

A port that is only chosen can be taken by somebody else before it is used; one that is
bound cannot.  The socket does not listen yet: rank 0's store does that, and a program
that knows nothing of the socket it was handed can still bind the port itself, which
SO_REUSEADDR allows as long as nobody listens, while the kernel gives the port to nobody
who asks for any free one.
"""

from __future__ import annotations

import socket


def bind_master(address: str, port: int) -> socket.socket:
    """OSError, naming the place, if it cannot be had."""
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
