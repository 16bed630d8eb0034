# SPDX-License-Identifier: BSD-3-Clause
"""The relay of a host: one connection to a store's server for all its processes."""

from __future__ import annotations

from .._C import _relay_is_connected, _relay_name, _relay_start

__all__ = ["StoreRelay", "store_relay"]

# Which relay the stores of a process use, for which server.
VARIABLE = "DISTLITE_STORE_RELAY"


class StoreRelay:
    """A relay that runs in this process until it is closed; `store_relay()` makes it.

    It can be used in a `with` statement, which closes it.

    Attributes:
        name: The name of its Unix socket. To replace the relay, in this process or in
            another one, start a relay with the same name.
        address: The value of `DISTLITE_STORE_RELAY` for the processes of this host that
            use the relay: the name, and the server's host and port.

    Args:
        host: As for `store_relay()`, like the others.
        port: See there.
        name: See there.
        token: See there.
        tls: See there.

    Example:
        >>> server = dist.TCPStore("127.0.0.1", 0, is_master=True)
        >>> relay = dist.store_relay("127.0.0.1", server.port)
        >>> relay.address.startswith(relay.name)
        True
        >>> relay.close()
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        name: str | None = None,
        token: str | bytes | None = None,
        tls: str | None = None,
    ):
        self._relay: object = _relay_start(host, port, name, token, tls)
        self.name = _relay_name(self._relay)
        self.address = f"{self.name}@{host}:{port}"

    @property
    def is_connected(self) -> bool:
        """Whether it has a connection to the server now."""
        return self._relay is not None and _relay_is_connected(self._relay)

    def close(self) -> None:
        """Ends its connections. Stores that use it connect to the server directly, and
        repeat calls that were in progress; each change still takes effect once.
        """
        self._relay = None

    def __repr__(self) -> str:
        state = "closed" if self._relay is None else "open"
        return f"<StoreRelay {self.address}, {state}>"

    def __enter__(self) -> StoreRelay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def store_relay(
    host: str,
    port: int,
    *,
    name: str | None = None,
    token: str | bytes | None = None,
    tls: str | None = None,
) -> StoreRelay:
    """Starts a relay between the processes of this host and a `TCPStore`'s server.

    Processes of the same user whose variable `DISTLITE_STORE_RELAY` is the relay's
    `address` connect to it, over a Unix socket, when they make a `TCPStore` for the
    same `host` and `port`. The relay has one connection to the server. Waits for the
    same keys become one wait at the server. Each change takes effect once, even if the
    relay ends in the middle; a store whose relay ends or does not answer connects to
    the server directly.

    The server may be started later. If it is torch's, the stores connect to it
    directly.

    Args:
        host: The host of the server, as the processes write it.
        port: Its port.
        name: The name of an earlier relay, to replace it. `None`: a new name.
        token: The job's token. `None`: that of the environment, if any.
        tls: The mode of TLS. `None`: that of `DISTLITE_TLS`.

    Returns:
        The relay, which runs until it is closed or is no longer referenced.

    Raises:
        DistNetworkError: Another relay has the name.
        ValueError: An argument is invalid.

    Example:
        >>> server = dist.TCPStore("127.0.0.1", 0, is_master=True)
        >>> with dist.store_relay("127.0.0.1", server.port) as relay:
        ...     print(relay.address.partition("@")[2] == f"127.0.0.1:{server.port}")
        True
    """
    return StoreRelay(host, port, name=name, token=token, tls=tls)
