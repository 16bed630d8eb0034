# SPDX-License-Identifier: BSD-3-Clause
"""The addresses of a job's store: whether one can be served there, and reached."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator

# Connections that may come before the store's server is there.  A kernel that is set so
# has room for fewer; those it drops are repeated after a second, or after many.
BACKLOG = 1 << 16


def check_address(address: str, port: int) -> None:
    """Raises OSError that names the address if it is not one of this host."""
    with _naming(address, port):
        _bind(address, 0).close()


def await_name(address: str, seconds: float) -> None:
    """Waits until `address` can be looked up, or the time is over: a name may become
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
    """Returns a listening socket for the store of a launcher that other nodes connect
    to; raises OSError that names the address if it is not one of this host.

    A host's own name is often an alias of its loopback, which other nodes cannot reach:
    unless `address` is a numeric loopback address, the socket listens on every address.
    """
    check_address(address, port)
    with _naming(address, port):
        if address == "::1" or address.startswith("127."):
            listener = _bind(address, port)
            listener.listen(BACKLOG)
            return listener
        if socket.has_dualstack_ipv6():
            return socket.create_server(
                ("", port),
                family=socket.AF_INET6,
                backlog=BACKLOG,
                dualstack_ipv6=True,
            )
        return socket.create_server(("", port), backlog=BACKLOG)


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
        # The error numbers of names that are not known are negative.
        number = getattr(error, "errno", None) or 0
        known = getattr(error, "strerror", None) or "not a host's name"
        reason = os.strerror(number) if number > 0 else known
        text = f"cannot listen on {address}:{port}: {reason}"
        raise OSError(number, text) from None
