# SPDX-License-Identifier: BSD-3-Clause
"""ProcessGroupGloo: a group made by hand, under torch's name and with its options."""

from __future__ import annotations

from datetime import timedelta

from ._C import ProcessGroup
from .constants import default_pg_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import Self

    from ._C import Store

__all__ = ["ProcessGroupGloo"]


class GlooDevice:
    """An interface of this host, by name or by an address of it."""

    def __init__(self, hostname: str, interface: str) -> None:
        self.hostname = hostname
        self.interface = interface

    def __repr__(self) -> str:
        return f"<distlite.ProcessGroupGloo.Device {self.interface or self.hostname}>"


class GlooOptions:
    """What the constructor takes in place of a timeout."""

    def __init__(self) -> None:
        self._timeout: timedelta = default_pg_timeout
        self._threads = 2
        self._devices: list[GlooDevice] = []
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""

    @property
    def backend(self) -> str:
        """The name of the backend they are for."""
        return "gloo"


class ProcessGroupGloo(ProcessGroup):
    """A group made by hand: every rank constructs it over the same store.

    Its last argument is a timeout or `_Options()`, by place or as `options`.
    """

    Device = GlooDevice
    Options = GlooOptions
    _Options = GlooOptions

    def __new__(
        cls,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta | float | GlooOptions = default_pg_timeout,
        options: GlooOptions | None = None,
    ) -> Self:
        told = timeout if options is None else options
        limit = told._timeout if isinstance(told, GlooOptions) else told
        return super().__new__(cls, store, rank, size, limit, backend="gloo")

    @staticmethod
    def create_device(
        hostname: str = "", interface: str = "", lazy_init: bool | None = None
    ) -> GlooDevice:
        """The device of an interface, or of a name or address of this host.

        For `_Options()._devices`, which are checked and kept; ranks that share a host
        need none, and between hosts GLOO_SOCKET_IFNAME chooses.
        """
        import socket

        if not hostname and not interface:
            raise ValueError("create_device() takes a hostname or an interface")
        if interface and interface not in (name for _, name in socket.if_nameindex()):
            raise RuntimeError(f"Unable to find address for: {interface}")
        if hostname:
            _check_own(hostname)
        return GlooDevice(hostname, interface)

    @staticmethod
    def create_default_device(lazy_init: bool | None = None) -> GlooDevice:
        """The device that is used where none is given."""
        return GlooDevice("", "")


def _check_own(hostname: str) -> None:
    """RuntimeError where it is no address of this host."""
    import socket

    try:
        found = socket.getaddrinfo(hostname, 0, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RuntimeError(f"Unable to find address for: {hostname}") from error
    for family, kind, protocol, _, address in found:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return
    raise RuntimeError(f"{hostname} is no address of this host: {found[0][4]}")
