# SPDX-License-Identifier: BSD-3-Clause
"""Ports for servers that must be given one."""

from __future__ import annotations

import random
import socket

_reserved: list[socket.socket] = []


def reserve_port() -> int:
    """Returns a port that no other process gets until this process ends.

    A socket that does not listen stays bound to it: a server, which sets SO_REUSEADDR,
    can bind it as well, and the kernel does not choose it for other sockets. It is
    below the range of ephemeral ports.
    """
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        holder = socket.socket()
        try:
            holder.bind(("", port))
        except OSError:
            holder.close()
            continue
        # Only now: set before bind(), the port of another process's holder could be
        # bound.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _reserved.append(holder)
        return port
    raise AssertionError("no free port")
