# SPDX-License-Identifier: BSD-3-Clause
"""What the parts of the soak share: rounds, one seed each, until the time is up."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
for folder in (TESTS / "multi", TESTS):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

# After so many the part ends: what follows is most often the same.
FAILURES = 3


def run_rounds(
    name: str, one_round: Callable[[int], object], seconds: float, seed: int
) -> int:
    """Rounds with the seeds `seed`, `seed + 1`, ...; the number of those that failed.

    A round that fails raises.  With its seed it is the first one of another run.
    """
    began = time.monotonic()
    rounds = failures = 0
    while rounds == 0 or (time.monotonic() - began < seconds and failures < FAILURES):
        try:
            one_round(seed + rounds)
        except Exception as error:
            failures += 1
            text = str(error) or traceback.format_exc()
            if not isinstance(error, AssertionError):
                text = traceback.format_exc()
            print(f"-- {name}: seed {seed + rounds} failed\n{text}")
            print(f"-- replay: make soak WHAT={name} SEED={seed + rounds} MINUTES=0")
        rounds += 1
        sys.stdout.flush()
    print(f"{name}: {rounds} rounds, seeds {seed} to {seed + rounds - 1}")
    return failures
