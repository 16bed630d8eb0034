# SPDX-License-Identifier: BSD-3-Clause
"""A rank is killed, stopped or interrupted at a random moment: the others say who it
was, in time, and go on without it."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

from rounds import run_rounds

WHAT = ["kill", "kill", "kill", "interrupt", "stop", "pause"]
# Beyond a deadline, on machines on which much else runs.
SLACK = 5.0


def one_kill(seed: int) -> None:
    import killer_ranks
    from workers import Outcome, rank_outcomes

    choice = random.Random(seed)
    size = choice.randrange(3, 7)
    hosts = choice.choice([1, 1, 2, 3])
    plan: dict[str, Any] = {
        "seed": seed,
        "victim": choice.randrange(size),
        "what": choice.choice(WHAT),
        "moment": round(choice.random() * 0.3, 4),
        "how": choice.choice(["shrink", "abort", "new"]),
        "host_of": [choice.randrange(hosts) for _ in range(size)],
    }
    settings = {}
    if choice.random() < 0.4:
        settings["DISTLITE_TOKEN"] = "a token of these ranks"
        settings["DISTLITE_TLS"] = choice.choice(["off", "psk"])
    with tempfile.TemporaryDirectory(prefix="killer-") as folder:
        path = str(Path(folder, "store"))
        outcomes = rank_outcomes(
            killer_ranks.survive, size, timeout=100, env=settings, path=path, **plan
        )

    def fail(text: str, outcome: Outcome) -> None:
        everyone = "\n".join(each.describe() for each in outcomes)
        raise AssertionError(
            f"rank {outcome.rank}: {text}\nof {plan}, {settings}\n{everyone}"
        )

    for outcome in outcomes:
        complaint = judge(outcome, plan, killer_ranks.TIMEOUT)
        if complaint:
            fail(complaint, outcome)


def judge(outcome: Any, plan: dict[str, Any], timeout: float) -> str:
    """What is wrong with what a rank has seen; empty: nothing."""
    victim, what = plan["victim"], plan["what"]
    if outcome.rank == victim and what == "kill":
        return "" if outcome.returncode == -9 else "was to be killed"
    if not outcome.is_good:
        return "failed"
    found = outcome.value
    if what == "pause":
        return f"was told {found['first']}" if found["first"] else ""
    if outcome.rank == victim:
        is_told = found.get("interrupted", False) if what == "interrupt" else True
        return "" if is_told else "was not interrupted"
    if f"rank {victim} " not in found["text"].replace(",", " "):
        return f"was told {found['text']!r}, after {found['first']!r}"
    # The first error, and the barrier's.
    limit = SLACK + (3 * timeout if what == "stop" else 0)
    if found["seconds"] > limit:
        return f"was told after {found['seconds']:.1f} s: {found['text']!r}"
    return ""


def main(seconds: float, seed: int) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    return run_rounds("killer", one_kill, seconds, seed)
