# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that were started wrongly are told what is wrong, all of them, and soon."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import check_in_ranks
import netns
import pytest
from doubles_build import ucc_double
from ports import reserve_port
from relays import Relay
from workers import SOON, run_ranks

import distlite as dist
from distlite.groups import check_in
from distlite.multiprocessing import spawn

SIZES = [(4, 4, 3), (3, 4, 4), (2, 4, 4), (4, 2, 4)]
TWICE = [(0, 3), (1, 3), (1, 3)]


@pytest.fixture(params=["file", "prefix", "tcp", "env"])
def method(request):
    """How the ranks find each other; they are on two hosts in turns."""
    if request.param == "file":
        return {}
    if request.param == "prefix":
        return {"way": "prefix"}
    way = "env" if request.param == "env" else "url"
    return {"init_method": f"tcp://127.0.0.1:{reserve_port()}", "way": way}


def check_sizes(results, sizes):
    for text, seconds in results:
        assert "DistBackendError: rank " in text and "WORLD_SIZE" in text
        for rank, size in enumerate(sizes):
            named = f"rank {rank} (pid "
            assert named not in text or f"world_size {size}" in text
        assert text.count(" with world_size ") == 2
        assert seconds < SOON


def check_twice(results):
    for text, seconds in results:
        assert "rank 1 was started twice, as pid " in text, text
        assert text.count(" on host ") == 2
        assert seconds < SOON


@pytest.mark.parametrize("sizes", SIZES)
def test_world_sizes_that_differ_are_named_on_every_rank(method, sizes):
    roles = list(enumerate(sizes))
    check_sizes(run_ranks(check_in_ranks.start, 3, roles=roles, **method), sizes)


@pytest.mark.parametrize("is_number", [True, False])
def test_a_negative_timeout_never_ends(is_number):
    limits = run_ranks(check_in_ranks.for_ever, 2, is_number=is_number)
    assert limits == [-1.0, -1.0]


def test_a_rank_that_is_started_twice_is_named_on_every_rank(method):
    check_twice(run_ranks(check_in_ranks.start, 3, roles=TWICE, **method))


@pytest.mark.parametrize("roles", [list(enumerate(SIZES[0])), TWICE])
def test_so_they_are_among_ranks_of_spawn(tmp_path, roles):
    spawn(check_in_ranks.start_spawned, (str(tmp_path), roles), nprocs=3)
    results = []
    for index in range(3):
        seconds, _, text = (tmp_path / str(index)).read_text().partition(" ")
        results.append((text, float(seconds)))
    if roles is TWICE:
        check_twice(results)
    else:
        check_sizes(results, SIZES[0])


def test_so_they_are_on_several_hosts():
    netns.skip_unless_possible()
    with netns.Network(2) as network:
        hosts = [network.hosts[place] for place in (0, 1, 1)]
        for port, roles in enumerate([list(enumerate(SIZES[0])), TWICE], 29500):
            method = f"tcp://{hosts[0].address}:{port}"
            results = run_ranks(
                check_in_ranks.start, 3, hosts=hosts, roles=roles, init_method=method
            )
            if roles is TWICE:
                check_twice(results)
            else:
                check_sizes(results, SIZES[0])


@pytest.mark.parametrize("keys", [dist.HashStore, "prefix"])
def test_so_they_are_over_any_store(keys):
    """Ranks as threads of one process."""
    store = dist.HashStore() if keys != "prefix" else None
    store = store or dist.PrefixStore("a", dist.PrefixStore("b", dist.HashStore()))
    texts = []

    def meet(rank, size):
        has_met = False
        while not has_met:
            checked = check_in.CheckIn(check_in.Attempt(store, rank, size))
            try:
                has_met = checked.meet("0", timedelta(seconds=30))
            except dist.DistBackendError as error:
                texts.append(str(error))
                checked.give_up(error)
                break

    for roles in [list(enumerate(SIZES[0])), TWICE]:
        texts.clear()
        begin = time.monotonic()
        threads = [threading.Thread(target=meet, args=role) for role in roles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(texts) == 3
        assert time.monotonic() - begin < SOON
        said = "was started twice" if roles is TWICE else " with world_size "
        assert all(said in text for text in texts), texts
        store = dist.HashStore()


@pytest.mark.parametrize("size", [2, 16])
def test_a_rank_makes_five_requests_however_many_come_and_how_late(size, monkeypatch):
    """The last one also sets the key for which all wait."""
    monkeypatch.setenv("DISTLITE_STORE_UNIX", "0")

    def meet(store, rank):
        if rank == 1:
            time.sleep(1.5 * check_in.ALONE)
        attempt = check_in.Attempt(store, rank, size)
        check_in.CheckIn(attempt).meet("0", timedelta(seconds=60))
        return attempt.number, attempt.job

    with contextlib.ExitStack() as stack:
        server = stack.enter_context(
            dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        )
        stores = [
            stack.enter_context(dist.TCPStore("127.0.0.1", server.port))
            for _ in range(size)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(size))
        before = server.stats()["requests"]
        found = set(pool.map(meet, stores, range(size)))
        made = server.stats()["requests"] - before - 1
    assert len(found) == 1 and found.pop()[0] == 1
    assert made == 5 * size + 1


def test_ranks_agree_on_each_attempt_over_one_store():
    """Ranks that have failed unequally often, and one that has never come."""
    store = dist.HashStore()

    def number(rank):
        return check_in.Attempt(store, rank, 3).number

    assert [number(0), number(1), number(0), number(0)] == [1, 1, 2, 3]
    assert [number(1), number(2)] == [3, 3]
    assert [number(2), number(1), number(0)] == [4, 4, 4]


@pytest.mark.parametrize("late", [1, 2])
def test_a_second_one_that_comes_too_late_is_told_so(late):
    roles = [(0, 3), (1, 3), (2, 3), (late, 3)]
    results = run_ranks(check_in_ranks.start, 4, roles=roles, one_too_many=True)
    assert [text for text, _ in results[:3]] == ["joined"] * 3
    text, seconds = results[3]
    assert text.startswith(f"DistBackendError: rank {late} was started twice, as pid ")
    assert text.count(" on host ") == 2
    assert seconds < SOON


@pytest.mark.parametrize("error", ["memory", "interrupt"])
@pytest.mark.parametrize("failing", [0, 2])
@pytest.mark.parametrize("scheme", ["file", "tcp"])
def test_a_rank_that_fails_behind_the_check_in_is_named(scheme, failing, error):
    method = {}
    if scheme == "tcp":
        method["init_method"] = f"tcp://127.0.0.1:{reserve_port()}"
    run = check_in_ranks.fail_after_check_in
    results = run_ranks(run, 3, failing=failing, error=error, **method)
    for rank, (text, seconds) in enumerate(results):
        assert seconds < SOON
        if rank != failing:
            assert f"rank {failing} (pid " in text, text
            cause = "MemoryError: none left" if error == "memory" else "interrupted"
            assert " could not join: " in text and cause in text, text


def test_a_rank_that_does_not_come_is_named():
    roles = [(0, 3), (2, 3)]
    run = check_in_ranks.start
    for text, _ in run_ranks(run, 2, roles=roles, wait=1, meets=True):
        assert "DistStoreError: joining group 0 as rank " in text
        assert (
            "timed out after 1000ms: waiting for rank 1, which has not joined" in text
        )


def count(arriving: check_in.CheckIn) -> None:
    arriving._arrivals.add(arriving._rank)


def test_a_rank_that_ends_before_it_arrives_is_named():
    """It has its claim already.  A rank is a bit of a counter, which has a few."""
    store = dist.HashStore()
    attempts = [check_in.Attempt(store, rank, 65) for rank in range(65)]
    found = [check_in.CheckIn(attempt) for attempt in attempts]
    for rank in range(65):
        if rank not in (5, 63):
            count(found[rank])
    assert found[0]._arrivals.absent() == [5, 63]
    with pytest.raises(
        dist.DistStoreError, match="waiting for ranks 5, 63, which have"
    ):
        found[64]._fail_absent("0", timedelta(seconds=1))
    count(found[64])
    count(found[63])
    assert not found[0]._keys.check(["all_are_here"])
    count(found[5])
    assert found[0]._keys.check(["all_are_here"])
    assert found[0]._arrivals.absent() == []


def arrive(store, rank, size, seconds=60.0):
    """Comes to the latest attempt, and returns the one at which all have met."""
    while True:
        attempt = check_in.Attempt(store, rank, size)
        checked = check_in.CheckIn(attempt)
        if checked.meet("0", timedelta(seconds=seconds)):
            return attempt.number


def wait_until(is_true):
    deadline = time.monotonic() + SOON
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("size", [2, 64])
def test_a_rank_that_has_given_up_meets_those_that_came_meanwhile(size):
    store = dist.HashStore()
    first = check_in.Attempt(store, 0, size)
    with pytest.raises(dist.DistStoreError, match="waiting for ranks? 1"):
        check_in.CheckIn(first).meet("0", timedelta(seconds=0.01))
    with ThreadPoolExecutor(size) as pool:
        others = [pool.submit(arrive, store, rank, size) for rank in range(1, size)]
        absent = check_in.CheckIn(first)._arrivals.absent
        wait_until(lambda: absent() == [])
        again = pool.submit(arrive, store, 0, size)
        assert {each.result(SOON) for each in [again, *others]} == {2}


@pytest.mark.parametrize("is_counted", [False, True])
def test_a_rank_whose_predecessor_was_killed_is_followed(is_counted):
    store = dist.HashStore()
    first = check_in.Attempt(store, 0, 3)
    lost = check_in.CheckIn(first)
    lost.presence.close()
    if is_counted:
        count(lost)
    with ThreadPoolExecutor(3) as pool:
        other = pool.submit(arrive, store, 1, 3)
        wait_until(lambda: 1 not in lost._arrivals.absent())
        again = pool.submit(arrive, store, 0, 3)
        wait_until(lambda: not first.is_latest())
        last = pool.submit(arrive, store, 2, 3)
        assert {each.result(SOON) for each in (other, again, last)} == {2}


def test_a_store_that_does_not_answer_holds_up_no_failure():
    is_answering = threading.Event()
    is_answering.set()

    def stall(is_up, offset, data):
        is_answering.wait(4 * SOON)
        return data

    with (
        dist.TCPStore("127.0.0.1", 0, is_master=True) as server,
        Relay(server.port, stall) as relay,
        dist.TCPStore("127.0.0.1", relay.port, timeout=timedelta(minutes=5)) as store,
    ):
        checked = check_in.CheckIn(check_in.Attempt(store, 0, 1))
        assert checked.meet("0", timedelta(minutes=5))
        is_answering.clear()
        since = time.monotonic()
        assert not checked.may_follow()
        took = time.monotonic() - since
        is_answering.set()
        checked.presence.close()
    assert took < 2 * SOON


def test_ranks_that_give_up_together_name_the_one_that_never_came():
    store = dist.HashStore()
    checked = [check_in.CheckIn(check_in.Attempt(store, rank, 3)) for rank in range(2)]
    for each in checked:
        count(each)
    for each in checked:
        with pytest.raises(dist.DistStoreError, match="waiting for rank 2, which has"):
            each._fail_absent("0", timedelta(seconds=1))
    last = check_in.CheckIn(check_in.Attempt(store, 2, 3))
    text = "waiting for ranks 0, 1, which have not waited so long"
    with pytest.raises(dist.DistStoreError, match=text):
        last.meet("0", timedelta(seconds=0.01))


@pytest.mark.parametrize("size", [2, 65])
def test_the_last_one_may_come_while_a_rank_gives_up(size):
    store = dist.HashStore()
    found = [
        check_in.CheckIn(check_in.Attempt(store, rank, size)) for rank in range(size)
    ]
    for each in found:
        count(each)
    assert not found[0]._arrivals.take_back(0)
    assert found[0]._arrivals.absent() == []
    parts = -(-size // 62)
    assert store.add("default_pg/1/arrived", 0) == (parts if parts > 1 else 0)


def test_the_last_one_that_is_killed_as_it_comes_is_not_awaited_for_ever():
    """It has counted itself, and does not set the key."""
    store = dist.HashStore()
    checked = check_in.CheckIn(check_in.Attempt(store, 0, 2))
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(checked.meet, "0", timedelta(seconds=1))
        wait_until(lambda: checked._arrivals.absent() == [1])
        checked._keys.add("arrived/0", 2)
        with pytest.raises(dist.DistStoreError, match="all_are_here"):
            waits.result(SOON)


def test_a_rank_that_comes_late_is_waited_for():
    assert run_ranks(check_in_ranks.come_late, 2) == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "ucc"])
def test_ranks_whose_store_answers_late_join(backend):
    """Each reply takes as long as many a join."""

    def delay(is_up: bool, offset: int, data: bytes) -> bytes:
        time.sleep(0.3)
        return data

    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    with Relay(server.port, delay) as relay:
        found = run_ranks(
            check_in_ranks.far_away,
            2,
            env=ucc_double(),
            ports=[server.port, relay.port],
            backend=backend,
        )
    assert [total for total, _ in found] == [2.0, 2.0]
    assert found[1][1] > 0.5
