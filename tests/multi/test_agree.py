# SPDX-License-Identifier: BSD-3-Clause
"""agree(): the same answer on all survivors, whenever others are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import agree_ranks
import pytest
from workers import rank_outcomes, run_ranks

import distlite as dist
from distlite.testing import start_ranks

LIMIT = agree_ranks.LIMIT


@pytest.fixture
def served() -> Iterator[dist.TCPStore]:
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        yield store


def seeds() -> list[Any]:
    slow = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 40)]
    return [*range(8), *slow]


@pytest.mark.parametrize("seed", seeds())
def test_survivors_get_the_same_answers(served, seed):
    size = 4
    plan = agree_ranks.plan_of(seed, size)
    outcomes = rank_outcomes(agree_ranks.survive, size, port=served.port, seed=seed)
    for each in outcomes:
        assert each.is_good != (each.rank in plan["deaths"]), each.describe()
    answers = [each.value for each in outcomes if each.is_good]
    assert all(each == answers[0] for each in answers), f"{plan}\n{answers}"
    gone: set[int] = set()
    for flags, (result, dead) in zip(plan["flags"], answers[0], strict=True):
        assert gone <= set(dead) <= set(plan["deaths"])
        gone = set(dead)
        # A flag counts or its rank is dead, one of both.
        said = [flag for rank, flag in enumerate(flags) if rank not in dead]
        assert result == all(said), f"{plan}\n{answers[0]}"


def test_a_timeout_names_who_has_not_come_and_decides_nothing(served):
    found = run_ranks(agree_ranks.come_late, 3, port=served.port)
    for each in found:
        assert each["second"] == (False, ())
        assert each["third"] == (True, ())
        assert len(each["keys"]) == 1 and each["keys"][0].endswith("/decision")
    for each in found[:-1]:
        assert each["error"].startswith(
            "DistBackendError: agree() in group 0 timed out"
        )
        assert "waiting for rank 2, which has not called it. Noth" in each["error"]
        assert each["took"] >= 0.5


def test_who_gives_up_takes_its_flag_along(served):
    found = run_ranks(agree_ranks.be_impatient, 3, port=served.port)
    assert found == [(False, ())] * 3


def test_an_interrupt_takes_the_flag_along(served):
    found = run_ranks(agree_ranks.be_interrupted, 2, port=served.port)
    assert found == [(True, ())] * 2


def test_a_stopped_rank_is_not_dead(served):
    with start_ranks(agree_ranks.be_stopped, 3, port=served.port, backend=None) as job:
        job.wait_for_mark(1, "ready")
        job.stop(1)
        served.set("stopped", "")
        served.get("given up", timeout=LIMIT)
        job.go_on(1)
        outcomes = job.wait(LIMIT)
    for each in outcomes:
        assert each.is_good, each.describe()
    assert outcomes[1].value == (True, ())
    for each in (outcomes[0], outcomes[2]):
        text, answer = each.value
        assert "waiting for rank 1, which has not called it" in text
        assert answer == (True, ())


TOKEN = {"DISTLITE_TOKEN": "of the tests of agree"}


@pytest.mark.parametrize(
    ("host_count", "env"),
    [(1, {}), (2, {}), (3, {}), (3, TOKEN), (3, {**TOKEN, "DISTLITE_TLS": "psk"})],
)
def test_a_rank_that_has_left_is_waited_for_until_it_ends(monkeypatch, host_count, env):
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        found = run_ranks(
            agree_ranks.leave_and_live, 3, port=store.port, host_count=host_count
        )
    assert found[2] is None
    for text, answer in found[:2]:
        assert "waiting for rank 2, which has not called it" in text
        assert answer == (True, (2,))


def test_each_group_counts_by_itself(served):
    found = run_ranks(agree_ranks.agree_in_parts, 3, port=served.port)
    same = [(True, ()), (False, ()), (True, ())]
    for rank, each in enumerate(found):
        assert each[-3:] == same
        if rank == 1:
            assert each[0].startswith("ValueError: this process is not a member")
        else:
            assert each[:-3] == [(False, ()), (True, ())]


@pytest.mark.parametrize("size", [2, 5])
def test_requests_do_not_grow_with_the_ranks(served, size):
    # A line, a count and a read by each; a few more by the last.
    found = run_ranks(agree_ranks.count_requests, size, port=served.port)
    assert max(found) < 7, found


def test_values_of_other_programs_are_an_error(served):
    found, _ = run_ranks(agree_ranks.find_foreign_values, 2, port=served.port)
    assert len(found) == 8
    for text in found:
        assert text.startswith("DistStoreError: the key agree/0/"), text
        assert "of the group's store does not hold what agree() writes there" in text
        assert len(text) < 300


def test_arguments_that_are_refused(served):
    dist.init_process_group("gloo", store=served, rank=0, world_size=1)
    try:
        assert dist.agree(True) and not dist.agree(False, timeout=0)
        for flag in (1, None, "yes", [True]):
            with pytest.raises(TypeError, match="flag must be a bool, not "):
                dist.agree(flag)
        with pytest.raises(ValueError, match="not a member"):
            dist.agree(True, dist.GroupMember.NON_GROUP_MEMBER)
    finally:
        dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group has not been init"):
        dist.agree(True)


SERVER = """
import distlite, sys
store = distlite.TCPStore("127.0.0.1", 0, is_master=True)
print(store.port, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_store_that_does_not_answer_ends_the_call(is_first):
    words = [sys.executable, "-c", SERVER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes) as server:
        port = int(server.stdout.readline())
        store = dist.TCPStore("127.0.0.1", port, timeout=LIMIT)
        group = dist.ProcessGroup(store, 0, 1)
        try:
            hang(server, group, is_first)
        finally:
            server.kill()


def stop(server: Any) -> None:
    server.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, server.pid, os.WSTOPPED)


def hang(server: Any, group: dist.ProcessGroup, is_first: bool) -> None:
    from distlite.groups.agreement import _Attempts

    if is_first:
        stop(server)
    began = time.monotonic()
    with pytest.raises(dist.DistError):
        attempts = _Attempts(group, began + 0.2)
        if not is_first:
            stop(server)
        attempts.reach(group, True, began, time.monotonic() + 0.2)
    assert time.monotonic() - began < 10
