# SPDX-License-Identifier: BSD-3-Clause
"""The default group of ranks that mpirun has started, as MPI sees them."""

from __future__ import annotations

import os

from . import _C
from ._C import TCPStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

LOOPBACK = "127.0.0.1"


def meet(timeout: timedelta) -> tuple[TCPStore, int, int]:
    """A store that rank 0 serves, and this process's rank and size in MPI's world.

    Starts MPI.  Rank 0 takes any free port, and MPI carries the address: of this host's
    own loopback for ranks that share its network, otherwise MASTER_ADDR or its name.
    """
    rank, size = _C._mpi_place()
    if rank == 0:
        store = _store(LOOPBACK, 0, size, timeout, is_master=True)
        _C._mpi_tell(f"{_network()} {store.port} {_name()}", timeout)
        return store, rank, size
    network, port, name = _C._mpi_tell("", timeout).split(" ")
    host = LOOPBACK if network == _network() else name
    return _store(host, int(port), size, timeout, is_master=False), rank, size


def _store(
    host: str, port: int, size: int, timeout: timedelta, is_master: bool
) -> TCPStore:
    return TCPStore(
        host,
        port,
        size,
        is_master=is_master,
        timeout=timeout,
        wait_for_workers=False,
        multi_tenant=is_master,
    )


def _network() -> str:
    """What processes have in common whose loopback is the same."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot}/{os.readlink('/proc/self/ns/net')}"


def _name() -> str:
    import socket

    return os.environ.get("MASTER_ADDR") or socket.gethostname()
