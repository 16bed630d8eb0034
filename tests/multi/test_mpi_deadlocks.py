# SPDX-License-Identifier: BSD-3-Clause
"""Ranks of backend mpi that wait for each other are told so."""

from __future__ import annotations

import mpi_ranks
import pytest
from doubles_build import mpi_double
from mpi_launching import results_of
from test_deadlocks import MARK, SOON, lines_of
from test_mpi import all_when_slow, launchers, start
from workers import rank_outcomes, run_ranks

# By name: how many ranks, and what the picture says.
DEADLOCKS = {
    "cross_groups": (2, ["0 rank 1 all_reduce  #1", "1 rank 0 all_reduce  #1"]),
    "cross_asynchronous_groups": (
        2,
        ["0 rank 1 all_reduce  #1", "1 rank 0 all_reduce  #1"],
    ),
    "receive_in_a_collective": (
        2,
        ["0 rank 1 all_reduce  #1", "1 rank 0 recv  with tag 0"],
    ),
    "send_to_each_other": (
        2,
        ["0 rank 1 send  with tag 0", "1 rank 0 send  with tag 0"],
    ),
    "mistake_a_tag": (2, ["0 rank 1 send  with tag 1", "1 rank 0 recv  with tag 2"]),
    # With a rank that is late for other reasons, and that is waited for first.
    "receive_from_a_leader": (
        3,
        ["0 rank 2 all_reduce  #1", "2 rank 0 recv  with tag 0"],
    ),
    "receive_from_a_root": (4, ["0 rank 1 recv  with tag 0", "1 rank 0 reduce  #1"]),
    "receive_past_a_parent": (
        4,
        ["0 rank 1 broadcast  #1", "1 rank 0 recv  with tag 0"],
    ),
}
QUICK = (
    *("cross_groups", "receive_in_a_collective", "send_to_each_other"),
    "receive_from_a_leader",
)
harmless = pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("wait_for_a_slow_rank", 3),
        ("let_a_thread_resolve_it", 2),
        ("receive_what_is_on_its_way", 2),
    ],
)


def culprits_of(lines):
    return [line.split()[0] for line in lines]


def check_pictures(texts, kind, lines):
    where = f"deadlock_ranks.py {kind}"
    for rank in culprits_of(lines):
        text = texts[int(rank)]
        assert MARK in text, texts
        assert lines_of(text) == [f"{line} {where}" for line in lines], texts


# The stand-in's sends end before they are received.
@pytest.mark.parametrize(
    "kind", sorted(set(DEADLOCKS) - {"send_to_each_other", "mistake_a_tag"})
)
def test_every_rank_in_it_is_told(kind):
    size, lines = DEADLOCKS[kind]
    texts = run_ranks(
        mpi_ranks.call,
        size,
        name="deadlock",
        words=[kind, *culprits_of(lines)],
        env=mpi_double(**SOON),
    )
    check_pictures(texts, kind, lines)


def test_a_cycle_among_more_ranks_than_send_to_each_other_directly():
    kind = "receive_from_a_leader"
    _, lines = DEADLOCKS[kind]
    texts = run_ranks(
        mpi_ranks.call,
        9,
        name="deadlock",
        words=[kind, *culprits_of(lines)],
        env=mpi_double(**SOON),
    )
    check_pictures(texts, kind, lines)


@all_when_slow
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in QUICK else [pytest.mark.slow])
        for kind in DEADLOCKS
    ],
)
def test_every_rank_in_it_is_told_with_an_mpi(tmp_path, launcher, kind):
    size, lines = DEADLOCKS[kind]
    words = ["deadlock", kind, *culprits_of(lines)]
    env = {"TEST_MPI_RESULTS": str(tmp_path), **SOON}
    # The launcher may call it a failure that an operation is left to MPI at the end.
    _, _, err = start(launcher, size, *words, **env)
    assert len(list(tmp_path.iterdir())) == size, err
    check_pictures(results_of(tmp_path, size), kind, lines)


@harmless
def test_what_ends_well_shows_no_picture(kind, size):
    outcomes = rank_outcomes(
        mpi_ranks.call,
        size,
        name="no_deadlock",
        words=[kind],
        env=mpi_double(**SOON),
    )
    for outcome in outcomes:
        assert outcome.is_good, outcome.describe()
        assert MARK not in outcome.output, outcome.describe()


@pytest.mark.slow
@launchers
@harmless
def test_what_ends_well_shows_no_picture_with_an_mpi(tmp_path, launcher, kind, size):
    env = {"TEST_MPI_RESULTS": str(tmp_path), **SOON}
    status, out, err = start(launcher, size, "no_deadlock", kind, **env)
    assert status == 0, err
    assert MARK not in out + err, out + err
