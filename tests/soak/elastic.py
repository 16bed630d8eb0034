# SPDX-License-Identifier: BSD-3-Clause
"""Members that are killed, stopped, fail, come and leave at random steps: one list for
each epoch, no step lost or executed twice, and an end in time."""

from __future__ import annotations

import os
import random
from typing import Any

from rounds import run_rounds

WHAT = ["", "kill", "kill", "stop", "leave", "raise"]
STEPS = 12


def plan_of(seed: int) -> dict[int, tuple[str, int, int]]:
    """What happens to each process, at which step it comes, and at which it happens;
    process 0 stays to the end."""
    choice = random.Random(seed)
    plan = {-1: ("", STEPS, 0), 0: ("", 0, 0)}
    for rank in range(1, choice.randrange(3, 6)):
        comes = choice.choice([0, 0, choice.randrange(1, STEPS // 2)])
        plan[rank] = choice.choice(WHAT), comes, choice.randrange(comes + 1, STEPS + 1)
    return plan


def one_world(seed: int) -> None:
    import elastic_ranks
    from workers import rank_outcomes

    import distlite as dist

    plan = plan_of(seed)
    size = len(plan) - 1
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        store.set("step/0", "")
        outcomes = rank_outcomes(
            elastic_ranks.live, size, timeout=40, port=store.port, plan=plan
        )
        record = store.get("elastic/world/epoch", timeout=0)
    for each in outcomes:
        was_killed = plan[each.rank][0] == "kill" and each.returncode == -9
        everyone = "\n".join(each.describe() for each in outcomes)
        assert was_killed or each.is_good, f"{plan}\n{record!r}\n{everyone}"
    check([each.value for each in outcomes if each.returncode != -9], plan)


def check(values: list[dict[str, Any]], plan: object) -> None:
    lists: dict[int, Any] = {}
    sums: list[float] = []
    worlds = [world for value in values for world in value["found"]]
    assert any(value["end"] == "finished" for value in values), (
        f"nobody finished: {plan}"
    )
    for world in worlds:
        sums = max(sums, world["sums"], key=len)
        for epoch, (_, ranks, members) in world["views"].items():
            known = lists.setdefault(epoch, (ranks, members))
            assert known == (ranks, members), f"epoch {epoch} of {plan}"
    assert len(sums) == STEPS, f"{sums} of {plan}"
    for value in values:
        for turn, world in enumerate(value["found"]):
            # Who was evicted may have seen a step that the others executed again.
            is_evicted = turn < len(value["found"]) - 1 or value["end"] == "late"
            count = len(world["sums"]) - is_evicted
            same = world["sums"][:count] == sums[:count] or count < 0
            assert same, f"{world}\n{sums}\n{plan}"


def main(seconds: float, seed: int) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return run_rounds("elastic", one_world, seconds, seed)
