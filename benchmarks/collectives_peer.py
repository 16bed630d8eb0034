# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of collectives.py: one rank of one library.

    collectives_peer.py PEER RANK SIZE FOLDER PLAN

PEER is distlite, torch, memory (no communication: what the memory alone allows) or mpi,
whose launcher knows rank and size.  FOLDER is where ranks meet; PLAN is JSON.  Rank 0
writes a line of JSON for each cell to FOLDER/said, with the placement of the cores of
ranks 0 and 1 if it was the same before and after.  Whatever the peer, the loop that is
timed and the check of what it computed are the same.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import microseconds_of
from placement import Placement, of_both

MODULES = {"distlite": "distlite", "memory": "distlite", "torch": "torch.distributed"}
ITEM_SIZE = 4  # float32
# What is the whole array and what a rank's block: the source, then the target.  Ops
# that work in place have no source.
SHAPES = {
    "barrier": (None, None),
    "all_reduce": (None, "whole"),
    "broadcast": (None, "whole"),
    "reduce": (None, "whole"),
    "scan": (None, "whole"),
    "exscan": (None, "whole"),
    "all_gather": ("block", "whole"),
    "all_gather_single": ("block", "whole"),
    "gather": ("block", "whole"),
    "scatter": ("whole", "block"),
    "reduce_scatter": ("whole", "block"),
    "reduce_scatter_single": ("whole", "block"),
    "all_to_all": ("whole", "whole"),
    "all_to_all_single": ("whole", "whole"),
}
ON_ROOT_ONLY = ("reduce", "gather")


class Arrays(NamedTuple):
    """What a call reads and writes."""

    source: np.ndarray
    target: np.ndarray


def wait_for_each(start: Callable[..., Any], arguments: list[Any]) -> Callable[[], Any]:
    """Returns a call as programs write it; a partial with a keyword would make a
    dictionary."""
    match arguments:
        case []:
            return lambda: start(async_op=True).wait()
        case [one]:
            return lambda: start(one, async_op=True).wait()
        case [one, two]:
            return lambda: start(one, two, async_op=True).wait()
        case [one, two, three]:
            return lambda: start(one, two, three, async_op=True).wait()
    raise ValueError(arguments)


class Dist:
    """distlite or torch.distributed."""

    def __init__(self, library: str, rank: int, size: int, folder: str) -> None:
        self.rank, self.size = rank, size
        self._module = importlib.import_module(MODULES[library])
        self._wrap = lambda array: array
        if library == "torch":
            self._wrap = importlib.import_module("torch").from_numpy
        where = f"file://{folder}/store"
        self._module.init_process_group(
            "gloo", init_method=where, rank=rank, world_size=size
        )

    def bind(self, op: str, arrays: Arrays, is_async: bool) -> Callable[[], Any]:
        """One call of the op, waited for."""
        source, target = map(self._wrap, arrays)
        sources, targets = (
            [self._wrap(part) for part in np.array_split(array, self.size)]
            for array in arrays
        )
        is_root = self.rank == 0
        name, *arguments = {
            "barrier": ("barrier",),
            "all_reduce": ("all_reduce", target),
            "broadcast": ("broadcast", target, 0),
            "reduce": ("reduce", target, 0),
            "scan": ("scan", target),
            "exscan": ("exscan", target),
            "all_gather": ("all_gather", targets, source),
            "all_gather_single": ("all_gather_single", target, source),
            "gather": ("gather", source, targets if is_root else None, 0),
            "scatter": ("scatter", target, sources if is_root else None, 0),
            "reduce_scatter": ("reduce_scatter", target, sources),
            "reduce_scatter_single": ("reduce_scatter_single", target, source),
            "all_to_all": ("all_to_all", targets, sources),
            "all_to_all_single": ("all_to_all_single", target, source),
        }[op]
        start = getattr(self._module, name)
        if is_async:
            return wait_for_each(start, arguments)
        return partial(start, *arguments)

    def barrier(self) -> None:
        """All ranks are here."""
        self._module.barrier()

    def maximum(self, value: float) -> float:
        """The largest of the ranks'."""
        values = np.zeros(self.size)
        values[self.rank] = value
        self._module.all_reduce(self._wrap(values))
        return float(values.max())

    def close(self) -> None:
        """Leave."""
        self._module.destroy_process_group()


class Memory(Dist):
    """In place of an all_reduce, all ranks add an array to itself at the same time.

    Between two ranks an all_reduce has to read and to write at least as much.
    """

    def bind(self, op: str, arrays: Arrays, is_async: bool) -> Callable[[], Any]:
        """The addition."""
        return partial(np.add, arrays.target, arrays.target, out=arrays.target)


class Mpi:
    """mpi4py on the MPI that the environment chooses."""

    def __init__(self) -> None:
        self._mpi = importlib.import_module("mpi4py.MPI")
        self._world = self._mpi.COMM_WORLD
        self.rank, self.size = self._world.Get_rank(), self._world.Get_size()

    def bind(self, op: str, arrays: Arrays, is_async: bool) -> Callable[[], Any]:
        """Returns one call of the op that is waited for; lists of arrays are one array
        here."""
        source, target = arrays
        in_place, plus = self._mpi.IN_PLACE, self._mpi.SUM
        is_root = self.rank == 0
        reduced = (in_place, target) if is_root else (target, None)
        name, *arguments = {
            "barrier": ("Barrier",),
            "all_reduce": ("Allreduce", in_place, target),
            "broadcast": ("Bcast", target, 0),
            "reduce": ("Reduce", *reduced, plus, 0),
            "scan": ("Scan", in_place, target),
            "exscan": ("Exscan", in_place, target),
            "all_gather": ("Allgather", source, target),
            "gather": ("Gather", source, target if is_root else None, 0),
            "scatter": ("Scatter", source if is_root else None, target, 0),
            "reduce_scatter": ("Reduce_scatter_block", source, target),
            "all_to_all": ("Alltoall", source, target),
        }[op.removesuffix("_single")]
        if not is_async:
            return partial(getattr(self._world, name), *arguments)
        start = partial(getattr(self._world, "I" + name.lower()), *arguments)
        return lambda: start().Wait()

    def barrier(self) -> None:
        """All ranks are here."""
        self._world.Barrier()

    def maximum(self, value: float) -> float:
        """The largest of the ranks'."""
        return self._world.allreduce(value, self._mpi.MAX)

    def close(self) -> None:
        """MPI leaves by itself."""


def make_arrays(op: str, size: int, ranks: int) -> Arrays:
    """`size` is that of the larger array of a rank; a block has an element at least."""
    block = max(1, size // ITEM_SIZE // ranks)
    # Only what is made of blocks must divide.
    is_blocked = "block" in SHAPES[op] or op.startswith("all_to_all")
    whole = block * ranks if is_blocked else max(1, size // ITEM_SIZE)
    counts = {"block": block, "whole": whole, None: 0}
    return Arrays(*(np.empty(counts[shape], np.float32) for shape in SHAPES[op]))


def check(peer: Any, op: str, arrays: Arrays, call: Callable[[], Any]) -> None:
    """One call, whose result must be right; afterwards all is zero, and stays so."""
    ranks = peer.size
    for array in arrays:
        array.fill(peer.rank + 1)
    call()
    each = np.arange(1, ranks + 1, dtype=np.float32)
    if op in ("broadcast", "scatter"):
        expected = each[:1]
    elif "reduce" in op:
        expected = each.sum(keepdims=True)
    elif "scan" in op:
        before = peer.rank + (op == "scan")
        expected = each[:before].sum(keepdims=True)
    else:
        expected = each
    # MPI leaves the first rank's result of an exscan undefined.
    is_defined = op != "barrier" and not (op == "exscan" and peer.rank == 0)
    if is_defined and (peer.rank == 0 or op not in ON_ROOT_ONLY):
        parts = arrays.target.reshape(len(expected), -1)
        if not (parts == expected[:, None]).all():
            raise SystemExit(f"rank {peer.rank}: wrong result of {op}")
    for array in arrays:
        array.fill(0)


def with_writing(
    call: Callable[[], Any], sources: list[np.ndarray]
) -> Callable[[], Any]:
    """Returns a call before which the sources are written, as programs do.

    Otherwise a library that reads them in the memory of their rank finds them in the
    reader's cache from the second call on.
    """

    def write_and_call() -> None:
        for source in sources:
            source.fill(0)
        call()

    return write_and_call


def run_cell(
    peer: Any, cell: tuple[str, str, int], plan: dict[str, Any]
) -> dict[str, float]:
    """Microseconds, as microseconds_of() names them; nothing if the library does not
    have the op.  The first calls are checked after they are timed."""
    op, mode, size = cell
    arrays = make_arrays(op, size, peer.size)
    for array in arrays:
        array.fill(0)
    try:
        call = peer.bind(op, arrays, mode == "async")
        checked = partial(check, peer, op, arrays, call)
        if not isinstance(peer, Memory) and not plan["first"]:
            checked()
        calls = call
        if plan["is_written"] and SHAPES[op][0]:
            calls = with_writing(call, [arrays.source])
        found = microseconds_of(peer, calls, plan)
        if not isinstance(peer, Memory) and plan["first"]:
            checked()
    except (AttributeError, RuntimeError) as error:
        print(f"{op} {mode}: {error}", file=sys.stderr)
        return {}
    return found


def place_of(peer: Any, folder: Path) -> Callable[[], str]:
    """Returns a function that measures the placement, and that all ranks call."""
    if peer.size == 1:
        return str
    found = Placement(folder / "placement", 0) if peer.rank == 0 else None
    peer.barrier()
    found = found or Placement(folder / "placement", peer.rank)

    def measure() -> str:
        peer.barrier()
        cores = found.measure()
        peer.barrier()
        return cores

    return measure


def main(kind: str, rank: str, size: str, folder: str, plan_text: str) -> None:
    """Every cell of the plan."""
    plan = json.loads(plan_text)
    if kind == "mpi":
        peer = Mpi()
    else:
        peer = (Memory if kind == "memory" else Dist)(
            kind, int(rank), int(size), folder
        )
    place = place_of(peer, Path(folder))
    gc.disable()
    with open(f"{folder}/said" if peer.rank == 0 else os.devnull, "w") as said:
        for cell in plan["cells"]:
            before = place()
            found = run_cell(peer, cell, plan)
            cores = of_both(before, place())
            op, *rest = cell
            for name, value in found.items():
                line = json.dumps([op + name, *rest, cores, value])
                print(line, file=said, flush=True)
    peer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
