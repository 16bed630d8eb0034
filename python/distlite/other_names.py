# SPDX-License-Identifier: BSD-3-Clause
"""What distlite calls what users of mpi4py and Horovod look for."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["hint_for", "reduction_hint"]

# By the name in small letters without underscores.  Names that differ from distlite's
# in these only, such as Get_rank and Allgather, are found without an entry.
_NAMES = {
    "abort": "an exception that ends the script: the launcher ends the other ranks",
    "alltoallv": "all_to_all_single(y, x, counts_of_y, counts_of_x)",
    "allgatherv": "all_gather(xs, x), or all_gather_arrays(x) for unknown sizes",
    "anysource": "recv(x) without a source",
    "bcast": "broadcast(x, src=0), or broadcast_object_list(objects, src=0)",
    "comm": "ProcessGroup",
    "commworld": "group.WORLD, which group=None stands for as well",
    "createcart": "Cartesian",
    "dup": "new_group()",
    "finalize": "destroy_process_group()",
    "getsize": "get_world_size()",
    "mpi": "the names of the module itself, such as distlite.get_rank()",
    "init": "init_process_group()",
    "inplace": "all_reduce(x), which puts the result into x",
    "rank": "get_rank()",
    "reducescatterblock": "reduce_scatter_single(y, x)",
    "request": "Work",
    "size": "get_world_size()",
    "win": "Window",
    "worldsize": "get_world_size()",
    "wtime": "time.perf_counter() of Python",
}

_REDUCTIONS = {
    "ADD": "SUM",
    "AVERAGE": "AVG",
    "LAND": "MIN, of booleans",
    "LOR": "MAX, of booleans",
    "MEAN": "AVG",
    "MUL": "PRODUCT",
    "PROD": "PRODUCT",
}


def hint_for(name: str, public: Iterable[str]) -> str:
    """Returns the end of the error for a name that the package does not have; "" for a
    name that is not known from elsewhere."""
    from .groups.reduce_op import RedOpType

    if name in RedOpType.__members__:
        return _told(f"ReduceOp.{name}")
    known = {_plain(each): each for each in public} | _NAMES
    if found := known.get(_plain(name)):
        return _told(found)
    if name[0] == "I" and (found := known.get(_plain(name[1:]))):
        return _told(f"{found} with async_op=True")
    return ""


def reduction_hint(name: str, public: Iterable[str]) -> str:
    """Does the same for a name that ReduceOp does not have."""
    found = name.upper() if name.upper() in public else _REDUCTIONS.get(name.upper())
    return _told(f"ReduceOp.{found}") if found else ""


def _plain(name: str) -> str:
    return name.lower().replace("_", "")


def _told(spelling: str) -> str:
    return f"; in distlite: {spelling}"
