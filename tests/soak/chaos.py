# SPDX-License-Identifier: BSD-3-Clause
"""Threads that use, abort, drop and destroy the same groups; callbacks that raise."""

from __future__ import annotations

import os
import random

from rounds import run_rounds


def one_chaos(seed: int) -> None:
    import chaos_ranks
    from workers import run_ranks

    choice = random.Random(seed)
    size = choice.randrange(2, 5)
    hosts = choice.choice([1, 1, 2])
    found = run_ranks(
        chaos_ranks.run_chaos,
        size,
        timeout=200,
        seed=seed,
        seconds=2.0,
        host_of=[choice.randrange(hosts) for _ in range(size)],
    )
    wrong = [f"rank {rank}: {text}" for rank, all_ in enumerate(found) for text in all_]
    assert not wrong, "\n".join(wrong)


def main(seconds: float, seed: int) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return run_rounds("chaos", one_chaos, seconds, seed)
