# SPDX-License-Identifier: BSD-3-Clause
"""Groups whose members change while the object stays, by torch's interface."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import reconfigure_ranks
from doubles_build import nccl_doubles
from workers import rank_outcomes, run_ranks

import distlite as dist


@pytest.fixture
def place() -> Iterator[str]:
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        yield str(store.port)


@pytest.mark.parametrize("hosts", [1, 2])
def test_everything_that_torch_tests(place, hosts):
    run_ranks(reconfigure_ranks.go_through_all, 3, place=place, apart=hosts)


def test_over_a_file(tmp_path):
    path = str(tmp_path / "store")
    run_ranks(reconfigure_ranks.go_through_all, 3, place=path, apart=1)


def test_a_number_counts_once(place):
    for again, alone in run_ranks(reconfigure_ranks.use_twice, 3, place=place):
        assert again.startswith("DistBackendError: uuid 1 was already used, for [pid ")
        assert alone.startswith("DistBackendError: uuid 1")
        assert "already used" in alone


def test_lists_that_differ_are_shown_on_all_at_once(place):
    found = run_ranks(reconfigure_ranks.differ, 3, place=place)
    pids = found[0]["pids"]
    for each in found:
        told = re.search(r"not have the same list for uuid 1: pid (\d+)", each["error"])
        lists = re.findall(r"\[(.*?)\]", each["error"])
        shown = [re.findall(r"pid (\d+)", text) for text in lists]
        # Whoever comes last finds that they differ.
        both = [pids[::-1], pids]
        assert told is not None
        assert shown == (both if told[1] == pids[2] else both[::-1])
        assert each["took"] < reconfigure_ranks.LIMIT / 2
        assert "reconfiguring it failed: DistBackendError: the proc" in each["after"]
        assert each["kind"] == 2


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_member_that_ends_is_named_and_the_others_go_on(place, hosts):
    outcomes = rank_outcomes(reconfigure_ranks.die_before, 3, place=place, apart=hosts)
    assert outcomes[2].returncode == -9
    for rank, each in enumerate(outcomes[:2]):
        assert each.is_good, each.describe()
        assert "members of the new group have ended: pid " in each.value["error"]
        assert "reconfiguring it failed" in each.value["after"]
        assert each.value["rank"] == rank


def test_who_comes_late_is_named_and_learns_that_the_others_gave_up(place):
    found = run_ranks(reconfigure_ranks.come_late, 3, place=place)
    assert "members of the new group have not joined: pid " in found[0]
    assert "members of the new group have not joined: pid " in found[2]
    assert " gave up: DistBackendError: members of the new group have" in found[1]


def test_a_newcomer_takes_the_place_of_a_killed_process(place):
    outcomes = rank_outcomes(reconfigure_ranks.replace_one, 4, place=place)
    assert outcomes[0].returncode == -9
    for rank, each in enumerate(outcomes[1:]):
        assert each.is_good, each.describe()
        assert each.value == rank


@pytest.mark.parametrize(
    "seed",
    [*range(2), *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 12))],
)
def test_random_lists(place, seed):
    assert sum(run_ranks(reconfigure_ranks.churn, 4, place=place, seed=seed)) > 0


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_each_group_has_a_communicator_of_its_own(place, backend):
    found = run_ranks(
        reconfigure_ranks.serve_devices,
        3,
        place=place,
        backend=backend,
        env=nccl_doubles(),
    )
    assert found == [[6.0, 3.0] * 4] * 2 + [[6.0] * 4]
