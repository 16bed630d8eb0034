# SPDX-License-Identifier: BSD-3-Clause
"""The measured side of hosts_many.py: all ranks of one library, forked processes.

    hosts_many_peer.py MODULE HOSTS RANKS_PER_HOST CELLS

MODULE is distlite or torch.distributed, and CELLS "operation:bytes:calls,...".  Writes
a line of JSON: milliseconds of the slowest rank, by step and cell.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import tempfile
import time
import urllib.parse  # noqa: F401 - so that no rank has to import it
from collections.abc import Callable
from typing import Any

import numpy as np

ROOT = 0


def arrays_of(torch: Any, count: int) -> Any:
    """An array of `count` float32, of the kind that the library takes."""
    array = np.ones(count, np.float32)
    return array if torch is None else torch.from_numpy(array)


def call_of(dist: Any, torch: Any, op: str, size: int, ranks: int) -> Callable[[], Any]:
    """The operation; `size` is that of each rank's array, or of the result where this
    has the blocks of all ranks."""
    whole = arrays_of(torch, max(size // 4, 1))
    if op == "barrier":
        return dist.barrier
    if op == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if op == "broadcast":
        return lambda: dist.broadcast(whole, ROOT)
    blocks = [arrays_of(torch, max(size // 4 // ranks, 1)) for _ in range(ranks)]
    block = arrays_of(torch, max(size // 4 // ranks, 1))
    if op == "all_gather":
        return lambda: dist.all_gather(blocks, block)
    if op == "reduce_scatter":
        return lambda: dist.reduce_scatter(block, blocks)
    others = [arrays_of(torch, max(size // 4 // ranks, 1)) for _ in range(ranks)]
    if torch is not None:
        return lambda: dist.all_to_all_single(torch.cat(others), torch.cat(blocks))
    return lambda: dist.all_to_all(others, blocks)


def run_rank(
    module: str, rank: int, hosts: int, per_host: int, cells: str, at: str
) -> Any:
    """One rank; milliseconds by step."""
    os.environ["DISTLITE_HOST_HINT"] = f"host {rank // per_host}"
    dist = importlib.import_module(module)
    torch = importlib.import_module("torch") if module.startswith("torch") else None
    ranks = hosts * per_host
    took: dict[str, float] = {}

    def measure(name: str, calls: int, call: Callable[[], Any]) -> None:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        took[name] = (time.perf_counter() - start) * 1e3 / calls

    measure(
        "init",
        1,
        lambda: dist.init_process_group(
            "gloo", init_method=f"file://{at}", rank=rank, world_size=ranks
        ),
    )
    measure("first barrier", 1, dist.barrier)
    for cell in filter(None, cells.split(",")):
        op, size, calls = cell.split(":")
        call = call_of(dist, torch, op, int(size), ranks)
        call()
        dist.barrier()
        measure(f"{op}:{size}", int(calls), call)
        # A rank that is done would take the others' cores for the next cell.
        dist.barrier()
    took["descriptors"] = len(os.listdir("/proc/self/fd"))
    dist.barrier()
    dist.destroy_process_group()
    return took


def main() -> None:
    """Forks the ranks, which share the imported modules, and begin together."""
    module, hosts, per_host, cells = sys.argv[1:]
    importlib.import_module(module)
    results = []
    wait, begin = os.pipe()
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(int(hosts) * int(per_host)):
            read, write = os.pipe()
            if os.fork() == 0:
                for inherited in (read, begin, *results):
                    os.close(inherited)
                os.read(wait, 1)
                took = run_rank(
                    module, rank, int(hosts), int(per_host), cells, f"{folder}/store"
                )
                os.write(write, json.dumps(took).encode())
                os._exit(0)
            os.close(write)
            results.append(read)
        os.close(begin)
        told = [json.loads(os.read(read, 1 << 16) or "{}") for read in results]
    if not all(told):
        sys.exit(f"{sum(not t for t in told)} ranks failed")
    print(json.dumps({name: max(t[name] for t in told) for name in told[0]}))


if __name__ == "__main__":
    main()
