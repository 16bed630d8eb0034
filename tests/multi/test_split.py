# SPDX-License-Identifier: BSD-3-Clause
"""split: groups by colors, in the order of keys."""

import pytest
import split_ranks
from doubles_build import mpi_double
from workers import rank_outcomes, run_ranks


@pytest.mark.parametrize("places", ["0000", "0011", "0101", "mpi"])
def test_colors_make_groups_and_keys_their_order(places):
    env = mpi_double() if places == "mpi" else {}
    found = run_ranks(split_ranks.parts, 4, env=env, places=places)
    wanted = [
        ([0, 2], [1, 3], [0, 2], [1, 3]),
        ([3, 2, 1, 0],) * 4,
        ([0], (), [2, 3], [2, 3]),
        ([0], [1], [2], [3]),
    ]
    for rank, groups in enumerate(found):
        for got, ranks in zip(groups, wanted, strict=True):
            own = list(ranks[rank])
            if not own:
                assert tuple(got) == ()
                continue
            place = own.index(rank)
            total = (place + 1) * (place + 2) / 2
            assert tuple(got) == (own, own, own[::-1], total, place)


def test_what_is_no_number_is_refused_at_once():
    for told in run_ranks(split_ranks.wrong, 2, places="00"):
        text, half, large, none = told
        assert text.startswith("TypeError: ") and half.startswith("TypeError: ")
        assert large.startswith("ValueError: color and key must have at most 64 bits")
        assert none.startswith("TypeError: ")


@pytest.mark.parametrize("places", ["000", "001"])
def test_a_dead_rank_is_named(places):
    *others, dead = rank_outcomes(split_ranks.killed, 3, places=places)
    assert dead.returncode == -9, dead.describe()
    for outcome in others:
        assert outcome.is_good, outcome.describe()
        assert outcome.value.startswith("DistBackendError: "), outcome.value
        assert "rank 2" in outcome.value, outcome.value
