# SPDX-License-Identifier: BSD-3-Clause
"""How pickle and copy make another handle of a store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from .._C import DistNetworkError, FileStore, HashStore, PrefixStore, Store, TCPStore

__all__ = ["open_file_store", "open_tcp_store", "reduce"]

# Addresses that mean all interfaces; the server's own host can connect to them.
ALL_ADDRESSES = {"": "localhost", "0.0.0.0": "127.0.0.1", "::": "::1"}


def reduce(store: Store) -> tuple[Any, ...]:
    """Returns a function, and the arguments with which it opens the same data.

    It raises a TypeError that says why, if the store cannot be opened again.
    """
    kind = type(store)
    if kind is TCPStore and isinstance(store, TCPStore):
        host = ALL_ADDRESSES.get(store.host, store.host)
        return open_tcp_store, (
            host,
            store.port,
            store.timeout,
            store._token,
            store._server,
            store._tls,
        )
    if kind is FileStore and isinstance(store, FileStore):
        return open_file_store, (store.path, store.timeout)
    raise TypeError(f"cannot pickle or copy a {kind.__name__}: {_reason(store)}")


def _reason(store: Store) -> str:
    if type(store) is HashStore:
        return (
            "it is memory of this process; use a TCPStore or a FileStore, which other "
            "processes can open"
        )
    if isinstance(store, (TCPStore, FileStore, HashStore, PrefixStore)):
        return "it is a subclass; define __reduce__() in it"
    return "it is written in Python; define __reduce__() in its class"


def open_tcp_store(
    host: str,
    port: int,
    timeout: timedelta,
    token: bytes | None = None,
    server: bytes | None = None,
    tls: str | None = None,
) -> TCPStore:
    """Opens a client that is not counted among those for which the server's process
    waits.

    It raises DistNetworkError if `server` is not None and another server has the port.
    """
    store = TCPStore(
        host, port, timeout=timeout, wait_for_workers=False, token=token, tls=tls
    )
    if server is not None and store._server != server:
        store.close()
        raise DistNetworkError(
            f"the store at {host}:{port} is another server than that of the store that "
            "was pickled or copied, which has ended: its keys are gone, and no request "
            "was sent to the new server"
        )
    return store


def open_file_store(path: str, timeout: timedelta) -> FileStore:
    """Opens a store that does not remove the file."""
    store = FileStore(path)
    store.set_timeout(timeout)
    return store
