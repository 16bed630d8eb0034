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


# Lists of members, and what the communicator is made of where all of them can.
CHANGES = (
    ([0, 1], "new"),
    ([0, 1, 2], "grown"),
    ([0, 1, 2, 3], "grown"),
    ([0, 1, 3], "shrunk"),
    ([1, 3, 0], "new"),  # in another order
    ([1, 3, 0, 2], "grown"),  # by one that has been there before
    ([3, 0], "shrunk"),
    ([3, 0], "new"),  # the same
    ([3, 0, 1, 2], "grown"),
    ([1], "shrunk"),
    ([1, 2], "grown"),
    ([0, 1, 2], "new"),  # a newcomer is the first
    ([0, 1, 3], "new"),  # one goes and one comes
    ([2], "shrunk"),  # from those that it was with last
)


def follow(place, env, made_by, **arguments):
    found = run_ranks(
        reconfigure_ranks.follow,
        4,
        place=place,
        changes=[who for who, _ in CHANGES],
        env=env,
        **arguments,
    )
    for rank, each in enumerate(found):
        assert each == [made_by(way) if rank in who else "" for who, way in CHANGES]


@pytest.mark.parametrize("variables", [{}, {"TORCH_NCCL_USE_COMM_NONBLOCKING": "1"}])
def test_communicators_shrink_and_grow(place, variables):
    follow(place, nccl_doubles(**variables), str)


def test_nothing_is_made_of_what_a_library_lacks(place):
    follow(place, nccl_doubles("-DOLD"), lambda way: "new")


def test_one_old_library_decides_for_all(place):
    env = nccl_doubles()
    changes = [[0, 1, 2], [0, 1, 2, 3], [0, 2, 3], [0, 2]]
    found = run_ranks(
        reconfigure_ranks.follow, 4, place=place, changes=changes, old=3, env=env
    )
    assert found[0] == found[2] == ["new", "new", "new", "shrunk"]


@pytest.mark.parametrize(
    "variables", [{"NCCL_COMM_BLOCKING": "1"}, {"NCCL_COMM_ID": "127.0.0.1:29"}, {}]
)
def test_what_cannot_grow_gets_a_new_communicator(place, variables):
    device_id = "cuda:0" if variables else None
    ways = {"grown": "new"}
    env = nccl_doubles(**variables)
    follow(place, env, lambda way: ways.get(way, way), device_id=device_id)


def test_operations_in_progress_are_waited_for(place):
    found = run_ranks(reconfigure_ranks.follow_busy, 3, place=place, env=nccl_doubles())
    assert found == [["new", "shrunk", "new"], ["new", "shrunk", ""], ["new", "", ""]]


@pytest.mark.parametrize("busy", [False, True])
def test_after_a_death_the_communicator_is_shrunk_unless_it_is_broken(place, busy):
    outcomes = rank_outcomes(
        reconfigure_ranks.lose_one, 3, place=place, busy=busy, env=nccl_doubles()
    )
    assert outcomes[1].returncode == -9
    for each in (outcomes[0], outcomes[2]):
        assert each.is_good, each.describe()
        assert each.value["shrunk"] == (not busy)
        assert "rank 1" in each.value.get("error", "rank 1")


KILLED, FAILED, ABSENT = 1, 2, 3


@pytest.mark.parametrize(
    ("way", "odd", "trouble"),
    [
        *(("grow", 3, trouble) for trouble in (KILLED, FAILED, ABSENT)),
        *(("shrink", 1, trouble) for trouble in (KILLED, FAILED, ABSENT)),
        ("grow", 0, KILLED),
        pytest.param("grow", 1, FAILED, marks=pytest.mark.slow),
        pytest.param("grow", 0, ABSENT, marks=pytest.mark.slow),
    ],
)
def test_what_fails_in_nccl_fails_on_all_and_the_next_attempt_does_not(
    place, way, odd, trouble
):
    outcomes = rank_outcomes(
        reconfigure_ranks.fail_to_follow,
        4,
        place=place,
        way=way,
        odd=odd,
        trouble=trouble,
        env=nccl_doubles(),
    )
    assert (outcomes[odd].returncode == -9) == (trouble == KILLED)
    for rank, each in enumerate(outcomes):
        if (rank, trouble) == (odd, KILLED):
            continue
        assert each.is_good, each.describe()
        assert each.value["is_new"]
        if way == "shrink" and rank == 3:
            continue
        text = each.value["error"]
        assert f"{way}ing the NCCL communicator of group 0.1, rank {rank} of" in text
        assert each.value["took"] < reconfigure_ranks.LIMIT / 2
        if trouble == ABSENT:
            assert re.search("did not (return|end) within [12]\\d\\d\\dms", text), text
        elif rank == odd:
            assert "this call was to fail" in text
        else:
            end = "exited or was killed" if trouble == KILLED else "gave up: "
            assert re.search(rf"rank {odd} \(pid \d+ on host [^)]*\) {end}", text)
