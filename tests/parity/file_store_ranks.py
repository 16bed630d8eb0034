# SPDX-License-Identifier: BSD-3-Clause
"""What the ranks of one job do to one FileStore file, torch's and ours in turn."""

from __future__ import annotations

import importlib
import os
import time
from datetime import timedelta

PATIENCE = timedelta(seconds=60)


def _open(path: str, rank: int, world_size: int):
    library = "torch.distributed" if rank % 2 == 0 else "distlite"
    store = importlib.import_module(library).FileStore(path, world_size)
    store.set_timeout(PATIENCE)
    return store


def share_a_file(rank: int, world_size: int, path: str) -> tuple[int, bytes, bool]:
    """The counter all added to, what the neighbour said, whether a deletion is seen."""
    store = _open(path, rank, world_size)
    for _ in range(25):
        store.add("count", 1)
        store.append("log", f"{rank};")
    store.set(f"from/{rank}", f"hello from {rank}" * 100)
    store.set(f"gone/{rank}", "soon deleted")
    store.barrier("written", world_size, PATIENCE)
    neighbour = (rank + 1) % world_size
    said = store.get(f"from/{neighbour}")
    store.delete_key(f"gone/{neighbour}")
    before = str(rank) if rank else ""
    after = str(rank + 1)
    while store.compare_set("turn", before, after) != after.encode():
        time.sleep(0.001)
    store.barrier("deleted", world_size, PATIENCE)
    is_gone = not store.check([f"gone/{rank}"])
    log = store.get("log").decode().rstrip(";").split(";")
    assert sorted(log) == sorted(str(r) for r in range(world_size) for _ in range(25))
    assert store.get("turn") == str(world_size).encode()
    total = store.add("count", 0)
    assert os.path.exists(path)
    store.barrier("done", world_size, PATIENCE)
    return total, said, is_gone
