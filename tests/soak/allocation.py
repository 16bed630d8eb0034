# SPDX-License-Identifier: BSD-3-Clause
"""Every allocation of every operation fails once: see allocation_ranks.py."""

from __future__ import annotations

import os
import random
import shlex
import subprocess
from pathlib import Path

from rounds import TESTS, run_rounds

SOURCE = Path(__file__).with_name("failing_malloc.c")
CALLS_A_ROUND = 4


def allocator() -> str:
    """Compiled anew when its source has changed."""
    made = TESTS.parent / "build" / "soak" / "failing_malloc.so"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        made.parent.mkdir(parents=True, exist_ok=True)
        flags = (
            "-std=gnu11 -O1 -g -fPIC -shared -fno-builtin -fno-optimize-sibling-calls"
        )
        command = shlex.split(os.environ.get("CC", "gcc")) + flags.split()
        partial = made.with_suffix(f".{os.getpid()}")
        subprocess.run([*command, str(SOURCE), "-o", str(partial)], check=True)
        partial.rename(made)
    return str(made)


def one_world(seed: int) -> None:
    import allocation_ranks
    from workers import run_ranks

    choice = random.Random(seed)
    size = choice.randrange(2, 4)
    hosts = choice.choice([1, 2, size])
    names = choice.sample(list(allocation_ranks.CALLS), CALLS_A_ROUND)
    run_ranks(
        allocation_ranks.run_failures,
        size,
        timeout=200,
        env={"LD_PRELOAD": allocator()},
        names=names,
        victim=choice.randrange(size),
        host_of=[rank % hosts for rank in range(size)],
    )


def main(seconds: float, seed: int) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return run_rounds("allocation", one_world, seconds, seed)
