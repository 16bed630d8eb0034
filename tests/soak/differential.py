# SPDX-License-Identifier: BSD-3-Clause
"""Random programs on random worlds, compared with NumPy bit for bit."""

from __future__ import annotations

import random

from rounds import run_rounds

STEPS = 150
# Of a world with more ranks than usual, whose rings and slots are smaller.
MANY = [12, 17, 20]
MANY_STEPS = 30


def one_world(seed: int) -> None:
    import differential_ranks
    from workers import run_ranks

    choice = random.Random(seed)
    has_many = choice.random() < 0.05
    size = choice.choice(MANY) if has_many else choice.randrange(2, 8)
    count = choice.choice([1, 1, 2, 3])
    hosts = [choice.randrange(count) for _ in range(size)]
    detail = choice.random() < 0.2
    settings = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"} if detail else {}
    if choice.random() < 0.4:
        settings["DISTLITE_TOKEN"] = "a token of these ranks"
        settings["DISTLITE_TLS"] = choice.choice(["off", "psk"])
    run_ranks(
        differential_ranks.run_program,
        size,
        timeout=150,
        env=settings,
        seed=seed,
        host_of=hosts,
        steps=MANY_STEPS if has_many else STEPS,
    )


def main(seconds: float, seed: int) -> int:
    return run_rounds("differential", one_world, seconds, seed)
