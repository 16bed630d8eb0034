# SPDX-License-Identifier: BSD-3-Clause
"""A rank that is killed at a random moment, in any operation: the others say who.

DISTLITE_KILL_ROUNDS is the number of rounds of the long test, 200 by default.
"""

import os
import random

import killed_ranks
import pytest
from workers import SOON, rank_outcomes

RANKS = 3


def kill_in_rounds(tmp_path, rounds, first_seed):
    for seed in range(first_seed, first_seed + rounds):
        victim = random.Random(seed).randrange(RANKS)
        outcomes = rank_outcomes(
            killed_ranks.until_killed,
            RANKS,
            path=str(tmp_path / f"store{seed}"),
            seed=seed,
            victim=victim,
        )
        for outcome in outcomes:
            if outcome.rank == victim:
                assert outcome.returncode == -9, (seed, outcome.describe())
                continue
            assert outcome.is_good, (seed, outcome.describe())
            text, seconds = outcome.value
            assert f"rank {victim} " in text, (seed, text)
            assert seconds < SOON, (seed, text)


def test_some(tmp_path):
    kill_in_rounds(tmp_path, 3, 1000)


@pytest.mark.slow
def test_many(tmp_path):
    kill_in_rounds(tmp_path, int(os.environ.get("DISTLITE_KILL_ROUNDS", "200")), 0)
