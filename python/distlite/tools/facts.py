# SPDX-License-Identifier: BSD-3-Clause
"""The facts that a rank finds out about its host by itself, for ``distlite doctor``."""

from __future__ import annotations

import os
import platform
import resource
import socket
from collections.abc import Callable
from importlib import metadata
from typing import Any

from distlite import _C
from distlite._version import __version__
from distlite.launch.cores import usable_cores

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"


def facts_of(rank: int, connected: str | None, with_libraries: bool) -> dict[str, Any]:
    """Returns all facts; `connected` is the local address of the connection to the
    store."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return {
        "rank": rank,
        "host": socket.gethostname(),
        "stack": _stack(),
        "pid": os.getpid(),
        "versions": {"distlite": __version__, "python": platform.python_version()},
        "addresses": _addresses(connected),
        "open_files": None if limit == resource.RLIM_INFINITY else limit,
        "cores": usable_cores(),
        "ranks_here": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "libraries": _libraries() if with_libraries else None,
    }


def _stack() -> str:
    """Returns an identity that ranks of one host share; a container may be a host."""
    try:
        namespace = os.readlink("/proc/self/ns/net")
    except OSError:
        namespace = ""
    return f"{_read('/proc/sys/kernel/random/boot_id')}/{namespace}"


def _addresses(connected: str | None) -> dict[str, Any]:
    """Returns the addresses that other hosts get, and the reason."""
    try:
        lines = [line.split(" ") for line in _C._addresses(connected).splitlines()]
    except (ValueError, RuntimeError) as error:
        return {"chosen": None, "why": str(error)}
    first, *others = [address for name, address in lines if name == "chosen"]
    interfaces = lines[1 + len(others) :]
    names = [name for name, address in interfaces if address == first]
    return {
        "chosen": first,
        "others": others,
        "interface": names[0] if names else None,
        "why": _reason_for(first, connected),
    }


def _reason_for(chosen: str, connected: str | None) -> str:
    wanted = os.environ.get(INTERFACE_VARIABLE)
    if wanted:
        return f"{INTERFACE_VARIABLE}={wanted}"
    if chosen == connected:
        return "used by the connection to the store"
    if chosen.startswith("127.") or chosen == "::1":
        return "no other interface is up"
    return "used for packets to other networks"


def _libraries() -> dict[str, str | None]:
    """Returns the versions of what backends and programs use; None if not found."""
    return {
        "MPI": _found(lambda: _C._mpi_library()[0]),
        "NCCL": _found(_C._nccl_version),
        "UCC": _found(_C._ucc_version),
        "NumPy": _package("numpy"),
        "torch": _package("torch"),
    }


def _found(version: Callable[[], object]) -> str | None:
    try:
        return str(version())
    except RuntimeError:
        return None


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
