# SPDX-License-Identifier: BSD-3-Clause
"""Ports for servers that must be given one."""

from __future__ import annotations

import random
import socket

_reserved: list[socket.socket] = []


def reserve_port() -> int:
    """A port that nobody else is given until this process ends.

    A socket that does not listen stays bound to it, which lets those bind it as well
    who set SO_REUSEADDR, as servers do, and nobody who asks for any port, or here.  It
    lies below the range that outgoing connections are given ports from.
    """
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        holder = socket.socket()
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # Only now: with it, somebody else's holder would not have been in the way.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(holder)
        return port
    raise AssertionError("no free port")
