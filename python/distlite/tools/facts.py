# SPDX-License-Identifier: BSD-3-Clause
"""The facts that a rank finds out about its host by itself, for ``distlite doctor``."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import platform
import resource
import socket
import sys
from importlib import metadata
from typing import Any

from distlite import _C
from distlite.launch.cores import cgroup_quota, usable_cores

INTERFACE_VARIABLE = "GLOO_SOCKET_IFNAME"
CGROUP_MEMORY = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)
# A limit beyond this means "no limit" in the older version of cgroups.
NO_LIMIT = 1 << 60


def facts_of(rank: int, connected: str | None, with_libraries: bool) -> dict[str, Any]:
    """Returns all facts; `connected` is the local address of the connection to the
    store."""
    return {
        "rank": rank,
        "host": socket.gethostname(),
        "stack": stack(),
        "pid": os.getpid(),
        "versions": {
            "distlite": _version(),
            "python": platform.python_version(),
            "kernel": platform.release(),
        },
        "addresses": addresses(connected),
        "limits": limits(),
        "cores": cores(),
        "libraries": libraries() if with_libraries else None,
    }


def stack() -> str:
    """Returns an identity that ranks of one host share; a container may be a host."""
    try:
        namespace = os.readlink("/proc/self/ns/net")
    except OSError:
        namespace = ""
    return f"{_read('/proc/sys/kernel/random/boot_id')}/{namespace}"


def addresses(connected: str | None) -> dict[str, Any]:
    """Returns the addresses that other hosts get, the reason, and all addresses."""
    try:
        lines = [line.split(" ") for line in _C._addresses(connected).splitlines()]
    except (ValueError, RuntimeError) as error:
        return {"chosen": None, "why": str(error), "interfaces": []}
    first, *others = [address for name, address in lines if name == "chosen"]
    interfaces = lines[1 + len(others) :]
    names = [name for name, address in interfaces if address == first]
    return {
        "chosen": first,
        "others": others,
        "interface": names[0] if names else None,
        "why": _why(first, connected),
        "interfaces": interfaces,
    }


def _why(chosen: str, connected: str | None) -> str:
    wanted = os.environ.get(INTERFACE_VARIABLE)
    if wanted:
        return f"{INTERFACE_VARIABLE}={wanted}"
    if chosen == connected:
        return "used by the connection to the store"
    if chosen.startswith("127.") or chosen == "::1":
        return "no other interface is up"
    return "used for packets to other networks"


def limits() -> dict[str, int | None]:
    """Returns the limits of open files, lockable and usable memory in bytes; None is no
    limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return {
        "open_files": _limit(soft),
        "open_files_at_most": _limit(hard),
        "locked_memory": _limit(locked),
        "address_space": _limit(resource.getrlimit(resource.RLIMIT_AS)[0]),
        "memory": cgroup_memory(),
        "available": available_memory(),
    }


def _limit(value: int) -> int | None:
    return None if value == resource.RLIM_INFINITY else value


def cgroup_memory() -> int | None:
    """Returns the memory that the container may use."""
    for path in CGROUP_MEMORY:
        text = _read(path)
        if text.isdecimal() and int(text) < NO_LIMIT:
            return int(text)
    return None


def available_memory() -> int | None:
    """Returns the memory that is available on the host now."""
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def cores() -> dict[str, Any]:
    """Returns the cores that this rank may use, and how many ranks share them."""
    return {
        "usable": usable_cores(),
        "affinity": len(os.sched_getaffinity(0)),
        "quota": cgroup_quota(),
        "host": os.cpu_count(),
        "ranks": int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS"),
    }


def libraries() -> dict[str, str | None]:
    """Returns the versions of libraries that backends and tools can use; None if not
    found."""
    return {
        "NCCL": _found(_nccl_names(), _nccl_version),
        "CUDA driver": _found(["libcuda.so.1"], _cuda_version),
        "MPI": _found(_names("mpi", "libmpi.so.40", "libmpi.so.12"), _mpi_version),
        "UCC": _found(_names("ucc", "libucc.so.1"), _ucc_version),
        "libuv": _found(_names("uv", "libuv.so.1"), _uv_version),
        "NumPy": _package("numpy"),
        "torch": _package("torch"),
    }


def _names(short: str, *names: str) -> list[str]:
    found = ctypes.util.find_library(short)
    return [*names, *([found] if found else [])]


def _nccl_names() -> list[str]:
    # The folder in which NVIDIA's wheels install it.
    folders = [os.path.join(p, "nvidia/nccl/lib") for p in sys.path if p]
    return [*(os.path.join(f, "libnccl.so.2") for f in folders), "libnccl.so.2"]


def _found(names: list[str], version: Any) -> str | None:
    for name in names:
        try:
            return str(version(ctypes.CDLL(name)))
        except (OSError, AttributeError):
            continue
    return None


def _nccl_version(library: ctypes.CDLL) -> str:
    number = ctypes.c_int()
    library.ncclGetVersion(ctypes.byref(number))
    major, rest = divmod(number.value, 10000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _cuda_version(library: ctypes.CDLL) -> str:
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _mpi_version(library: ctypes.CDLL) -> str:
    # More than MPI_MAX_LIBRARY_VERSION_STRING of all common MPIs.
    text = ctypes.create_string_buffer(1 << 16)
    library.MPI_Get_library_version(text, ctypes.byref(ctypes.c_int()))
    first = text.value.decode(errors="replace").splitlines()[0]
    return " ".join(first.split(",")[0].split())


def _ucc_version(library: ctypes.CDLL) -> str:
    library.ucc_get_version_string.restype = ctypes.c_char_p
    return bytes(library.ucc_get_version_string()).decode()


def _uv_version(library: ctypes.CDLL) -> str:
    library.uv_version_string.restype = ctypes.c_char_p
    return bytes(library.uv_version_string()).decode()


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _version() -> str:
    return _package("distlite") or "not installed"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
