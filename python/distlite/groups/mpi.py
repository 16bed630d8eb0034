# SPDX-License-Identifier: BSD-3-Clause
"""The default group of ranks that mpirun has started, as MPI sees them."""

from __future__ import annotations

import os
from datetime import timedelta

from .. import _C
from .._C import DistBackendError, TCPStore
from ..cluster import LAUNCHERS

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"


def meet(timeout: timedelta, world_size: int = -1) -> tuple[TCPStore, int, int]:
    """Returns a store that rank 0 serves, and this process's rank and size in MPI's
    world.

    Starts MPI.  Rank 0 takes any free port, and MPI carries the address: of this host's
    own loopback for ranks that share its network, otherwise MASTER_ADDR or its name.
    The server listens on loopback only if the launcher says that all ranks are here.
    DistBackendError if `world_size` or WORLD_SIZE names another size than MPI's.
    """
    source, asked = _asked_size(world_size)
    launched = _launched_size()
    if asked and launched and asked != launched:
        # Before MPI starts: processes that share an MPI rank would end in its abort.
        raise _disagreement(source, asked, launched)
    rank, size = _C._mpi_place()
    if asked and asked != size:
        raise _disagreement(source, asked, size)
    if rank == 0:
        host = LOOPBACK if _is_one_host(size) else EVERYWHERE
        store = _store(host, 0, size, timeout, is_master=True)
        _C._mpi_tell(f"{_network()} {store.port} {_name()}", timeout)
        return store, rank, size
    network, port, name = _C._mpi_tell("", timeout).split(" ")
    host = LOOPBACK if network == _network() else name
    return _store(host, int(port), size, timeout, is_master=False), rank, size


def _asked_size(world_size: int) -> tuple[str, int]:
    """Returns the setting that gives the number of ranks, and the number, or 0."""
    if world_size > 0:
        return f"world_size={world_size}", world_size
    text = os.environ.get("WORLD_SIZE", "")
    return f"WORLD_SIZE={text}", int(text) if text.isdecimal() else 0


def _launched_size() -> int:
    """Returns the world size that an MPI launcher has set; 0 without a launcher."""
    names = (LAUNCHERS["Open MPI"][1], LAUNCHERS["MPI"][1])
    texts = [os.environ[name] for name in names if name in os.environ]
    return int(texts[0]) if texts and texts[0].isdecimal() else 0


def _is_one_host(size: int) -> bool:
    names = [names[3] for names in LAUNCHERS.values()]
    return str(size) in [os.environ.get(name) for name in names]


def _disagreement(source: str, asked: int, size: int) -> DistBackendError:
    ranks = "1 rank" if size == 1 else f"{size} ranks"
    if asked > size:
        remedy = (
            f"start them with `mpirun -n {asked} python script.py`, without another "
            "launcher, or use another backend, such as gloo"
        )
    else:
        remedy = (
            "unset RANK and WORLD_SIZE, and leave out world_size=, to make a group of "
            "all ranks that mpirun has started"
        )
    return DistBackendError(
        f"backend mpi: {source} asks for a group of {asked}, but MPI's "
        f"world has {ranks}; {remedy}"
    )


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
    """Returns an identity that processes with the same loopback share."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return f"{boot}/{os.readlink('/proc/self/ns/net')}"


def _name() -> str:
    import socket

    return os.environ.get("MASTER_ADDR") or socket.gethostname()
