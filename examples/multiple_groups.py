# SPDX-License-Identifier: BSD-3-Clause
"""Groups with several backends at once, each for the arrays it is fastest with.

    python -m distlite.run --nproc-per-node 4 examples/multiple_groups.py
    torchrun --nproc-per-node 4 examples/multiple_groups.py
    python examples/multiple_groups.py

`distlite.best_backend(array)` returns the fastest available backend for an array's
memory.  If there is none, as for CUDA without NCCL, its error says what is missing, and
this program prints the reason and continues on the CPU.  Beside the group of all ranks
there is one for each half of them, and one for each of --backends; groups are
independent of each other, and their operations may run at the same time.

--check compares every sum with what it must be.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

import numpy as np

import distlite as dist

COUNT = 1000
# The first is set by distlite run and torchrun, the others by mpirun.
LAUNCHED = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")


def device_array(values: np.ndarray) -> Any:
    """Returns the values on this process's CUDA device; None without device or CuPy."""
    try:
        import cupy

        if cupy.cuda.runtime.getDeviceCount() == 0:
            return None
        return cupy.asarray(values)
    except Exception:
        # Without a driver, CuPy raises errors of its own.
        return None


def choose(values: np.ndarray) -> tuple[str, Any]:
    """Returns the backend and the array: on a device if all ranks have one, else on the
    CPU."""
    array = device_array(values)
    reason = "there is no CUDA device, or no CuPy"
    if array is not None:
        try:
            backend = dist.best_backend(array)
        except RuntimeError as error:
            array, reason = None, str(error)
    # All ranks have to make the same choice.
    can = np.array([array is not None], np.int32)
    dist.all_reduce(can, op=dist.ReduceOp.MIN)
    if can[0]:
        return f"cpu:{dist.best_backend('cpu')},cuda:{backend}", array
    if dist.get_rank() == 0:
        print(f"{reason}: going on with the CPU")
    return dist.best_backend(values), values


def here_or_gloo(name: str) -> str:
    """Returns the backend if it can be used here, else gloo, and prints a message.

    An MPI library alone is not enough: without mpirun, each process is a world of one.
    """
    reason = f"{name} is not here"
    if dist.is_backend_available(name):
        if name != "mpi" or any(variable in os.environ for variable in LAUNCHED[1:]):
            return name
        reason = "mpi is here, but mpirun has not started the ranks"
    if dist.get_rank() == 0:
        print(f"{reason}: gloo in its place")
    return "gloo"


def parse() -> argparse.Namespace:
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description="Groups of several kinds at once.")
    parser.add_argument("--backends", nargs="*", default=["gloo", "nccl"])
    parser.add_argument("--check", action="store_true", help="compare the sums")
    return parser.parse_args()


def main() -> int:
    """Returns the exit code, 1 if a sum is wrong."""
    options = parse()
    if any(name in os.environ for name in LAUNCHED):
        dist.init_process_group()
    else:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    rank, size = dist.get_rank(), dist.get_world_size()
    values = np.full(COUNT, rank + 1.0)
    backend, fast = choose(values.copy())

    everybody = list(range(size))
    halves = [half for half in (everybody[0::2], everybody[1::2]) if half]
    mine = halves[rank % 2]
    groups = {"all ranks": (dist.new_group(backend=backend), fast, everybody)}
    for half in halves:
        group = dist.new_group(half, backend="gloo")
        if rank in half:
            groups[f"ranks {half}"] = (group, values.copy(), mine)

    for name in options.backends:
        group = dist.new_group(backend=here_or_gloo(name))
        groups[f"all ranks, for {name}"] = (group, values.copy(), everybody)

    # All run at the same time: operations are ordered only within a group.
    works = [
        dist.all_reduce(array, group=group, async_op=True)
        for group, array, _ in groups.values()
    ]
    for work in works:
        work.wait()

    problems = []
    for name, (group, array, members) in groups.items():
        found, expected = float(array[0]), sum(member + 1.0 for member in members)
        if not bool((array == expected).all()):
            problems.append(f"{name}: the sum is {found}, not {expected}")
        if rank == members[0]:
            print(f"{name}, {dist.get_backend(group)}: sum {found:g}", flush=True)
    dist.barrier()
    if options.check and rank == 0 and not problems:
        print("every sum is right")
    for problem in problems:
        print(f"multiple_groups: rank {rank}: {problem}", file=sys.stderr)
    dist.destroy_process_group()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
