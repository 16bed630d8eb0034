# SPDX-License-Identifier: BSD-3-Clause
"""distlite.elastic: worlds that lose, replace and gain members."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, pairwise
from threading import Barrier
from typing import Any

import elastic_ranks
import numpy as np
import pytest
from elastic_ranks import error_of
from workers import Outcome, rank_outcomes, run_ranks

import distlite as dist
from distlite import elastic
from distlite.elastic.member import PATIENCE
from distlite.groups import members as making
from distlite.testing import start_ranks

LIMIT = elastic_ranks.LIMIT


def slow(value: object) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.fixture
def served() -> Iterator[dist.TCPStore]:
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as store:
        yield store


def survivors(outcomes: list[Outcome], killed: int) -> list[dict[str, Any]]:
    """What the processes found that were not killed."""
    found = [each.value for each in outcomes if each.returncode != -9]
    for each in outcomes:
        assert each.returncode == -9 or each.is_good, each.describe()
    assert len(found) == len(outcomes) - killed
    return found


def check_lists(found: list[dict[str, Any]]) -> None:
    """Everybody has the same list in each epoch, and the same state at the end."""
    lists: dict[int, Any] = {}
    for each in found:
        for epoch, (rank, ranks, members) in each["views"].items():
            assert lists.setdefault(epoch, (ranks, members)) == (ranks, members)
            assert ranks[members.index(each["id"])] == rank
        for key in ("sums", "bulk", "name"):
            assert each[key] == found[0][key]


def test_members_that_are_killed(served):
    outcomes = rank_outcomes(elastic_ranks.lose, 4, port=served.port, lost=[1, 3])
    found = survivors(outcomes, 2)
    check_lists(found)
    # One step with four members was executed for each number, and none twice.
    assert found[0]["sums"] == [4.0] * 3 + [3.0] * 2 + [2.0] * 5
    for each in found:
        assert each["loads"] == []
        before = list(each["views"].values())
        # Those that stay keep their order, and are numbered anew.
        for (_, _, old), (_, ranks, new) in pairwise(before):
            assert [member for member in old if member in new] == new
            assert ranks == list(range(len(new)))
        lost = [member for members in each["lost"].values() for member in members]
        assert len(lost) == 2
    # One member writes the table of all, after each of the kills if they lie far apart.
    said = "".join(each.output for each in outcomes)
    assert 1 <= said.count("saw an operation fail") <= 2
    # Members that have begun the next epoch already have new numbers in it.
    assert ", 4 of 4 ranks" in said


def test_newcomers_get_the_state_of_the_members(served):
    found = run_ranks(elastic_ranks.gain, 4, port=served.port, first=2)
    check_lists(found)
    for rank, each in enumerate(found):
        assert len(each["loads"]) == (rank >= 2)
        assert each["sums"][:3] == [2.0] * 3
        assert each["sums"][-3:] == [4.0] * 3


@pytest.mark.parametrize("bulk", [0, elastic_ranks.BULK])
def test_arrays_of_a_state_arrive_as_they_are(served, bulk):
    """Of any dtype and layout, and whatever order a source has them in."""
    found = run_ranks(elastic_ranks.give_a_state, 3, port=served.port, bulk=bulk)
    assert found == ["loaded 4"] * 3


@pytest.mark.parametrize("bulk", [4, elastic_ranks.BULK])
def test_states_that_differ_are_an_error(served, bulk):
    found = run_ranks(elastic_ranks.differ, 3, port=served.port, bulk=bulk)
    assert all("that have the state differ in their arrays" in each for each in found)


@pytest.mark.parametrize("ranks", [slow("compact"), "stable"])
def test_a_spare_takes_the_place_of_a_lost_member(served, ranks):
    outcomes = rank_outcomes(elastic_ranks.replace, 4, port=served.port, ranks=ranks)
    found = survivors(outcomes, 1)
    check_lists(found)
    spare = found[-1]
    assert spare["sums"] == [3.0] * 6
    assert spare["loads"] == [3]
    [(_, (rank, all_ranks, _))] = spare["views"].items()
    assert all_ranks == [0, 1, 2]
    assert rank == (1 if ranks == "stable" else 2)


@pytest.mark.parametrize("hosts", [1, 3])
def test_a_stopped_member_is_evicted_and_changes_nothing(served, hosts):
    """Over shared memory, and over connections."""
    options = {"port": served.port, "hosts": hosts, "backend": None}
    with start_ranks(elastic_ranks.stop, 3, **options) as job:
        victim = int(served.get("victim", timeout=LIMIT))
        job.wait_for_mark(victim, "ready")
        job.stop(victim)
        served.set("stopped", "")
        served.get("over", timeout=LIMIT)
        job.go_on(victim)
        outcomes = job.wait(LIMIT)
    for each in outcomes:
        assert each.is_good, each.describe()
    evicted = outcomes[victim].value
    assert (
        "DistBackendError" in evicted["reduce"] and "DistBackendError" in evicted["put"]
    )
    for call in ("next", "again"):
        assert evicted[call].startswith("Evicted: epoch 2 of world has no place for")
    for each in outcomes:
        if each.rank != victim:
            assert each.value == {"sum": 2.0, "size": 2, "lost": 1, "after": [2.0] * 20}


def test_a_body_that_raises_commits_on_nobody(served):
    found = run_ranks(elastic_ranks.fail, 3, port=served.port)
    assert sum(each["error"] == "OSError: the disk is full" for each in found) == 1
    for each in found:
        assert "the disk is full" in each["error"]
        assert each["done"] == 1
        assert each["view"] == (2, 3, 1)
        assert (each["first"], each["second"]) == (3.0, 3.0)
        assert each["twice"].startswith("ValueError: step 2 is not after step 2")


@pytest.mark.parametrize("leaves", [slow(False), True])
@pytest.mark.parametrize("doubting", [slow([0]), [0, 2], [0, 1, 2]])
def test_a_step_is_committed_if_another_has_seen_it(served, doubting, leaves):
    found = run_ranks(
        elastic_ranks.doubt, 3, port=served.port, doubting=doubting, leaves=leaves
    )
    for each in found:
        if len(doubting) == 3:
            assert each["error"].startswith(
                "DistBackendError: step 1 was not committed"
            )
            assert each["done"] is None
        else:
            assert each["error"] == ""
            assert each["done"] == 1


def test_those_that_leave_are_not_waited_for(served):
    found = run_ranks(elastic_ranks.leave, 3, port=served.port)
    [gone] = [each for each in found if "error" in each]
    rest = [each for each in found if "error" not in each]
    assert gone["error"].startswith("RuntimeError: this member has left its world")
    check_lists(rest)
    for each in rest:
        assert each["sums"] == [3.0] * 3 + [2.0] * 3
        last = max(each["left"])
        assert each["left"][last] == [gone["id"]] and each["lost"][last] == []


def test_a_step_without_failure_sends_nothing_to_the_store(served):
    # Two calls of stats() by each, and few looks for newcomers.
    for requests in run_ranks(elastic_ranks.count_requests, 2, port=served.port):
        assert requests < 20


def members_of(
    store: dist.TCPStore, size: int, timeout: float = LIMIT, **options: Any
) -> list[elastic.Member]:
    """Members that are threads of this process, by a connection each."""
    options = {"max_size": size, "settle": elastic_ranks.LONG, **options}
    stores = [
        dist.TCPStore("127.0.0.1", store.port, timeout=LIMIT) for _ in range(size)
    ]
    return [elastic.join(each, timeout=timeout, **options) for each in stores]


def in_threads(function: Callable[..., Any], rows: Iterable[Any]) -> list[Any]:
    rows = list(rows)
    with ThreadPoolExecutor(len(rows)) as threads:
        running = [threads.submit(function, row) for row in rows]
        return [each.result(LIMIT) for each in running]


def anew(member: elastic.Member) -> elastic.View:
    return member.next(anew=True)


def close(members: list[elastic.Member]) -> None:
    for each in members:
        each.leave()


def test_a_timeout_evicts_nobody(served):
    members = members_of(served, 3)
    in_threads(elastic.Member.next, members)
    for _ in range(2):
        with pytest.raises(dist.DistStoreError) as caught:
            members[0].next(0.3, anew=True)
        # The other two are alive, and have not come.
        text = str(caught.value)
        assert text.count(f"pid {os.getpid()} on host ") == 2
        assert "1 of at least 1 have come. Nobody is evicted by it" in text
    views = in_threads(anew, members)
    assert {(view.epoch, view.size, view.lost) for view in views} == {(2, 3, ())}
    close(members)


def test_who_was_late_is_evicted_at_the_next_call(served):
    """Also if it has seen no error of the epoch in which it was a member."""
    first, late = members_of(served, 2, settle=0.2)
    in_threads(elastic.Member.next, [first, late])
    assert first.next(anew=True).lost == (late.id,)
    with pytest.raises(elastic.Evicted, match="taken for lost"):
        late.next()
    close([first, late])


def test_a_group_that_was_shut_down_delays_nobody(served):
    """Its connections are gone on one member; the others still have theirs."""
    members = members_of(served, 3)
    views = in_threads(elastic.Member.next, members)
    views[1].group.shutdown()
    check_next_epoch(members)


def test_a_group_that_one_member_cannot_make_delays_nobody(served, monkeypatch):
    """The others are in the group already, and wait there."""
    members = members_of(served, 3)
    in_threads(elastic.Member.next, members)
    turns, real = count(), making._meet

    def fails_on_the_last(*rest: Any) -> Any:
        arrivals = real(*rest)
        if next(turns) == 2:
            raise dist.DistStoreError("the connection broke")
        return arrivals

    monkeypatch.setattr(making, "_meet", fails_on_the_last)
    check_next_epoch(members)


def check_next_epoch(members: list[elastic.Member]) -> None:
    """All members come into one, long before what a missing one has for its group."""
    began = time.monotonic()
    views = in_threads(anew, members)
    assert time.monotonic() - began < PATIENCE
    assert len({view.epoch for view in views}) == 1
    assert {(view.size, view.lost) for view in views} == {(3, ())}
    sums = in_threads(lambda each: elastic_ranks.one_sum(each, 1), members)
    assert sums == [3.0] * 3
    close(members)


def test_no_operation_writes_into_an_array_in_the_next_epoch(served):
    members = members_of(served, 2)
    in_threads(elastic.Member.next, members)
    begun = Barrier(2, timeout=LIMIT)

    def work(member: elastic.Member) -> None:
        outputs, mine = np.zeros((8, 2, 1 << 18)), np.ones(1 << 18)
        works = []
        with pytest.raises(OSError), member.step(1) as view:
            works += [
                dist.all_gather_single(output, mine, view.group, async_op=True)
                for output in outputs
            ]
            begun.wait()
            raise OSError("as an example")
        # Those under way have ended, and so have those that had not begun.
        assert all(each.is_completed() for each in works)
        outputs[:] = 7
        view = member.next()
        dist.barrier(view.group)
        assert (outputs == 7).all()

    in_threads(work, members)
    close(members)


def test_too_few_members_wait_and_may_try_again(served):
    first, second = members_of(served, 2, min_size=2)
    with pytest.raises(dist.DistStoreError, match="1 of at least 2 have come"):
        first.next(0.2)
    views = in_threads(elastic.Member.next, [first, second])
    assert [view.size for view in views] == [2, 2]
    close([first, second])


@pytest.mark.slow
def test_who_finds_no_place_waits_as_a_spare(served):
    members = members_of(served, 3, max_size=2)
    found = in_threads(lambda each: error_of(each.next, 3), members)
    assert sorted(map(bool, found)) == [False, False, True]
    late = next(each for each, text in zip(members, found, strict=True) if text)
    others = [each for each in members if each is not late]
    others[0].leave()
    views = in_threads(anew, [late, others[1]])
    assert {(view.size, len(view.joined), len(view.left)) for view in views} == {
        (2, 1, 1)
    }
    close(members)


def test_a_store_that_others_use_keeps_its_timeout():
    """One that has no connections, and so no clone of its own."""
    store = dist.PrefixStore("here", dist.HashStore())
    store.set_timeout(17)
    member = elastic.join(store, "alone", timeout=20)
    assert member.next().size == 1
    member.leave()
    assert store.timeout.total_seconds() == 17


@pytest.mark.parametrize(
    "raw", [b"\xff", b"[1]", b'{"epoch": 1, "x": 2}', b"[" * 99999]
)
@pytest.mark.parametrize("key", ["epoch", "arrivals/0"])
def test_what_others_write_is_an_error_that_names_the_key(key, raw):
    store = dist.HashStore()
    store.set(f"elastic/world/{key}", raw + b"\n")
    member = elastic.join(store, "world", timeout=20)
    with pytest.raises(dist.DistStoreError, match=f"the key elastic/world/{key} does"):
        member.next()


@pytest.mark.parametrize("spare", [False, True])
def test_who_waits_when_the_work_is_done_is_told(served, spare):
    first, second = members_of(served, 2, max_size=2)
    in_threads(elastic.Member.next, [first, second])
    late = elastic.join(served, max_size=2, spare=spare, timeout=LIMIT)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(late.next)
        served.wait(["elastic/world/arrivals/1"], LIMIT)
        first.finish()
        with pytest.raises(elastic.Finished, match="the work of world is done"):
            waiting.result(LIMIT)
    with elastic.join(served, timeout=LIMIT) as member:
        member.next()
        pytest.fail("a finished world has taken a newcomer")
    first.finish()
    second.finish()
    late.leave()


def test_a_member_learns_of_the_last_step_of_a_finished_world(served):
    """Also where fewer members are left than the world needs, and newcomers wait."""
    seen, blind = members_of(served, 2, min_size=2, settle=0.2)
    in_threads(elastic.Member.next, [seen, blind])
    in_threads(lambda each: elastic_ranks.one_sum(each, 1), [seen, blind])
    late = elastic.join(served, min_size=2, timeout=LIMIT)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(late.next)
        seen.finish()
        with pytest.raises(elastic.Finished):
            waiting.result(LIMIT)
        view = blind.next(anew=True)
    assert (view.size, view.done, blind.done) == (1, 1, 1)
    close([blind, late])


def test_a_launchers_store_that_is_not_there_is_an_error(monkeypatch):
    for address, port in (("", "1"), ("127.0.0.1", ""), ("127.0.0.1", "x")):
        monkeypatch.setenv("MASTER_ADDR", address)
        monkeypatch.setenv("MASTER_PORT", port)
        with pytest.raises(ValueError, match="do not name a launcher's store"):
            elastic.join()


def test_the_store_of_the_launcher(served, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(served.port))
    for timeout in (20, -1):
        with elastic.join(name=f"w{timeout}", timeout=timeout) as member:
            assert member.next().size == 1


def test_arguments_that_are_refused(served):
    for options in (
        {"min_size": 0},
        {"min_size": 3, "max_size": 2},
        {"ranks": "any"},
        {"quorum": "all"},
        {"name": "a/b"},
        {"settle": -1.0},
    ):
        with pytest.raises(ValueError):
            elastic.join(served, **options)


def test_the_world_goes_on_when_its_store_comes_back(tmp_path):
    path = tmp_path / "journal"
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, journal=path)
    members = members_of(store, 3)
    first = in_threads(elastic.Member.next, members)
    store.close()
    # Steps need no store.
    sums = in_threads(lambda each: elastic_ranks.one_sum(each, 1), members)
    assert sums == [3.0] * 3
    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(anew, each) for each in members]
        with pytest.raises(TimeoutError):
            running[0].result(0.5)
        with dist.TCPStore("127.0.0.1", store.port, is_master=True, journal=path):
            views = [each.result(LIMIT) for each in running]
            assert {(view.epoch, view.done) for view in views} == {(2, 1)}
            assert {view.members for view in views} == {first[0].members}
            close(members)


def test_a_store_that_cannot_be_reached_is_waited_for_as_long_as_is_said(served):
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as lost:
        clients = [dist.TCPStore("127.0.0.1", lost.port) for _ in range(2)]
    began = time.monotonic()
    with pytest.raises(dist.DistNetworkError):
        elastic.join(clients[0], timeout=0.2)
    with elastic.join(served, timeout=0.2) as member:
        with pytest.raises(dist.DistNetworkError):
            member.replace_store(clients[1])
        assert member.next(LIMIT).size == 1
    assert time.monotonic() - began < elastic_ranks.LONG


@pytest.mark.parametrize("quorum", ["majority", slow("any")])
def test_a_store_that_was_replaced_needs_a_majority(served, quorum):
    members = members_of(served, 3, quorum=quorum, settle=0.2)
    in_threads(elastic.Member.next, members)
    in_threads(lambda each: elastic_ranks.one_sum(each, 1), members)
    with dist.TCPStore("127.0.0.1", 0, is_master=True) as other:
        for each in members:
            each.replace_store(dist.TCPStore("127.0.0.1", other.port))
        if quorum == "any":
            assert members[0].next(anew=True).size == 1
            late = members[1:]
        else:
            with pytest.raises(dist.DistStoreError, match="1 of at least 2 have come"):
                members[0].next(1.0, anew=True)
            views = in_threads(anew, members[:2])
            assert {(v.epoch, v.size, v.done) for v in views} == {(2, 2, 1)}
            late = members[2:]
        for each in late:
            with pytest.raises(elastic.Evicted):
                each.next(anew=True)
        close(members)
