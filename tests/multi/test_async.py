# SPDX-License-Identifier: BSD-3-Clause
"""Work and Future, mostly with threads as ranks."""

import asyncio
import ctypes
import datetime
import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import async_ranks
import numpy as np
import pytest
from pending import hold_back
from workers import SOON, rank_outcomes, run_ranks

import distlite
from distlite import (
    DistBackendError,
    Future,
    HashStore,
    ProcessGroup,
    collect_all,
    wait_all,
)
from distlite.tools import recording

LONG = 60.0


def join_two():
    """Two ranks of one group."""
    store = HashStore()
    with ThreadPoolExecutor(2) as threads:
        joining = [
            threads.submit(ProcessGroup, store, rank, 2, LONG) for rank in range(2)
        ]
        return [each.result(LONG) for each in joining]


@pytest.fixture
def pair():
    """Two ranks of one group."""
    groups = join_two()
    yield groups
    for group in groups:
        group.shutdown()


def reduce_both(groups, value=1.0):
    """The tensors and works of one all_reduce."""
    tensors = [np.full(3, value + rank) for rank in range(2)]
    works = [
        distlite.all_reduce(tensor, group=group, async_op=True)
        for tensor, group in zip(tensors, groups, strict=True)
    ]
    return tensors, works


def test_a_work_before_and_after_its_end(pair):
    tensor = np.ones(3)
    work = distlite.all_reduce(tensor, group=pair[0], async_op=True)
    assert not work.is_completed()
    assert not work.is_success()
    assert work.exception() is None
    with pytest.raises(RuntimeError, match=r"^Work needs to be completed before"):
        work.result()
    other = np.ones(3)
    distlite.all_reduce(other, group=pair[1])
    for _ in range(3):
        assert work.wait() is True
    assert work.is_completed() and work.is_success()
    assert work.exception() is None
    assert work.result()[0] is tensor
    assert work.synchronize() is None
    assert tensor.tolist() == other.tolist() == [2.0] * 3
    with pytest.raises(RuntimeError, match="sourceRank"):
        work.source_rank()


def test_a_receive_before_and_after_its_end(pair):
    work = distlite.irecv(np.zeros(3), group=pair[0])
    for name, text in (("source_rank", "sourceRank"), ("result", "Work needs to be")):
        with pytest.raises(
            RuntimeError, match=rf"^{text}.*call wait\(\) before {name}"
        ):
            getattr(work, name)()
    distlite.send(np.ones(3), 0, group=pair[1])
    work.wait()
    assert work.source_rank() == 1


def test_a_receive_that_fails_has_no_result(pair):
    work = distlite.irecv(np.zeros(3), group=pair[0])
    pair[0].abort()
    with pytest.raises(distlite.DistBackendError):
        work.wait()
    for ask in (work.source_rank, work.result):
        with pytest.raises(distlite.DistBackendError, match="aborted"):
            ask()


def test_ranks_of_one_thread(pair):
    tensors, works = reduce_both(pair)
    assert wait_all([work.get_future() for work in works]) == [[t] for t in tensors]
    assert [t.tolist() for t in tensors] == [[3.0] * 3] * 2


def until_one_runs():
    deadline = time.monotonic() + 60
    while all(each.state != "running" for each in recording.own().unfinished()):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize("begins", ["at once", "later"])
def test_a_wait_that_times_out_ends_nothing_else(pair, begins):
    tensors = [np.full(3, 1.0), np.full(3, 10.0)]
    works = [
        distlite.all_reduce(tensor, group=pair[0], async_op=True) for tensor in tensors
    ]
    if begins == "later":
        until_one_runs()
    # The second one's waits, too, must not end the first, which comes before it.
    for work in (works[1], works[0], works[1]):
        before = time.monotonic()
        with pytest.raises(
            DistBackendError,
            match="all_reduce timed out after 50ms; it has not finished",
        ):
            work.wait(0.05)
        assert 0.04 < time.monotonic() - before < SOON
        assert not work.is_completed() and work.exception() is None
    for value in (2.0, 20.0):
        distlite.all_reduce(np.full(3, value), group=pair[1])
    assert all(work.wait() and work.wait(0.05) for work in works)
    assert [tensor[0] for tensor in tensors] == [3.0, 30.0]
    assert reduced(pair, 1.0) == [3.0] * 2


@pytest.mark.parametrize("kind", ["send", "recv"])
def test_a_wait_for_a_message_that_times_out_ends_nothing_else(pair, kind):
    full, empty = np.arange(1 << 17, dtype=float), np.zeros(1 << 17)
    if kind == "send":
        work = distlite.isend(full, 1, group=pair[0])
    else:
        work = distlite.irecv(empty, 1, group=pair[0])
    for _ in range(2):
        with pytest.raises(
            DistBackendError, match=f"{kind} timed out after 50ms; it has not finished"
        ):
            work.wait(0.05)
        assert not work.is_completed()
    if kind == "send":
        distlite.recv(empty, 0, group=pair[1])
    else:
        distlite.send(full, 0, group=pair[1])
    assert work.wait()
    assert (full == empty).all()
    assert reduced(pair, 1.0) == [3.0] * 2


def test_an_operation_keeps_to_its_own_deadline_behind_a_longer_one(pair):
    first = distlite.all_reduce(np.ones(3), group=pair[0], async_op=True)
    pair[0].set_timeout(0.2)
    before = time.monotonic()
    second = distlite.all_reduce(np.ones(3), group=pair[0], async_op=True)
    third = distlite.all_reduce(np.ones(3), group=pair[0], async_op=True)
    with pytest.raises(DistBackendError, match="200ms: an earlier operation in this"):
        second.wait()
    assert 0.15 < time.monotonic() - before < SOON
    assert not first.is_completed()
    other = np.ones(3)
    distlite.all_reduce(other, group=pair[1])
    assert first.wait() and other.tolist() == [2.0] * 3
    # What the other rank calls next would be the second one.
    with pytest.raises(DistBackendError, match="is broken: .*an earlier operation"):
        third.wait()


def reduced(groups, value):
    """What both ranks have after an all_reduce."""
    tensors, works = reduce_both(groups, value)
    for work in works:
        work.wait()
    return [tensor[0] for tensor in tensors]


def test_wait_takes_a_timeout_and_nothing_else(pair):
    tensors, works = reduce_both(pair)
    for given, named in (((), {"bogus": 3}), ((1, 2), {}), ((1,), {"timeout": 2})):
        with pytest.raises(TypeError, match=r"wait\(\)"):
            works[0].wait(*given, **named)
    with pytest.raises(TypeError, match="timeout must be"):
        works[0].wait(timeout="soon")
    assert vectorcall_without_names(works[0].wait) is True
    assert works[1].wait(timeout=LONG) is True
    assert [tensor.tolist() for tensor in tensors] == [[3.0] * 3] * 2


def vectorcall_without_names(function):
    """With an empty tuple of keyword names, as C code may."""
    call = ctypes.pythonapi.PyObject_Vectorcall
    call.restype = ctypes.py_object
    call.argtypes = [
        ctypes.py_object,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.py_object,
    ]
    behind = (ctypes.c_void_p * 1)(0xDEADBEEF0)
    return call(function, behind, 0, ())


def test_a_dropped_work_still_happens(pair):
    distlite.all_reduce(np.full(3, 5.0), group=pair[0], async_op=True)
    gc.collect()
    other = np.ones(3)
    distlite.all_reduce(other, group=pair[1])
    assert other.tolist() == [6.0] * 3


def test_arrays_live_as_long_as_their_work(pair):
    class Array(np.ndarray):
        pass

    tensor = np.ones(3).view(Array)
    alive = weakref.ref(tensor)
    work = distlite.all_reduce(tensor, group=pair[0], async_op=True)
    del tensor
    gc.collect()
    assert alive() is not None
    distlite.all_reduce(np.ones(3), group=pair[1])
    work.wait()
    assert work.result()[0] is alive()
    del work
    gc.collect()
    assert alive() is None


def test_a_dropped_work_keeps_its_arrays_until_its_end(pair):
    class Array(np.ndarray):
        pass

    tensor = np.ones(3).view(Array)
    alive = weakref.ref(tensor)
    garbage = [distlite.all_reduce(tensor, group=pair[0], async_op=True)]
    garbage.append(garbage)
    del tensor, garbage
    gc.collect()
    assert alive() is not None
    distlite.all_reduce(np.ones(3), group=pair[1])
    # The next one that has ended takes along what ended before.
    work = distlite.barrier(pair[0], async_op=True)
    distlite.barrier(pair[1])
    work.wait()
    gc.collect()
    assert alive() is None


def resized(values, size):
    """An array of its own memory, and what gives that memory back."""
    array = np.array(values)
    return array, lambda: array.resize(size, refcheck=False)


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("is_view", [False, True])
def test_an_array_that_is_resized_meanwhile_is_not_touched(pair, size, is_view):
    array, resize = resized(np.ones(1000), size)
    let_begin = hold_back(pair)
    work = distlite.all_reduce(
        array[10:500] if is_view else array, group=pair[0], async_op=True
    )
    resize()
    before = array.copy()
    let_begin()
    with ThreadPoolExecutor(1) as thread:
        other = np.ones(490 if is_view else 1000)
        peer = thread.submit(distlite.all_reduce, other, group=pair[1])
        with pytest.raises(DistBackendError, match="all_reduce: .*resized by resize"):
            work.wait()
        with pytest.raises(DistBackendError, match="rank 0 .*resized by resize"):
            peer.result(LONG)
    assert array.tobytes() == before.tobytes()
    with pytest.raises(DistBackendError, match="is broken: .*resized"):
        distlite.barrier(pair[0])


def test_lists_of_arrays_are_looked_at_again(pair):
    outputs = [np.zeros(3) for _ in range(2)]
    let_begin = hold_back(pair)
    gathered = distlite.all_gather(outputs, np.ones(3), pair[0], async_op=True)
    outputs[1].resize(9, refcheck=False)
    let_begin()
    with ThreadPoolExecutor(1) as thread:
        others = [np.zeros(3) for _ in range(2)]
        peer = thread.submit(distlite.all_gather, others, np.ones(3), pair[1])
        with pytest.raises(DistBackendError, match="resized"):
            gathered.wait()
        with pytest.raises(DistBackendError, match="resized"):
            peer.result(LONG)
    assert outputs[1].tolist() == [0.0] * 9


@pytest.mark.parametrize("count", [3, 1_000_000])
def test_messages_of_arrays_that_are_resized_fail_alone(pair, count):
    array, resize = resized(np.zeros(count), 2 * count)
    work = distlite.irecv(array, group_src=1, group=pair[0])
    resize()
    if count == 3:  # which has ended by then
        distlite.send(np.ones(count), group_dst=0, group=pair[1])
    else:
        with pytest.raises(DistBackendError, match="its array was moved"):
            distlite.send(np.ones(count), group_dst=0, group=pair[1])
    with pytest.raises(DistBackendError, match="recv from rank 1 .*resized by resize"):
        work.wait()
    assert not array.any()
    # One that no peer has answered, by the waiting thread itself.
    array, resize = resized(np.zeros(count), 2 * count)
    work = distlite.irecv(array, group_src=1, tag=1, group=pair[0])
    resize()
    with pytest.raises(DistBackendError, match="recv from rank 1 .*resized by resize"):
        work.wait()
    # A large one that nobody has asked for yet; the small one has gone.
    array, resize = resized(np.ones(count), 2 * count)
    work = distlite.isend(array, group_dst=1, group=pair[0])
    resize()
    into = np.zeros(count)
    if count == 3:
        distlite.recv(into, group_src=0, group=pair[1])
        assert into.all()
    else:
        with pytest.raises(DistBackendError, match="gave up"):
            distlite.recv(into, group_src=0, group=pair[1])
        with pytest.raises(DistBackendError, match="send to rank 1 .*resized"):
            work.wait()
    distlite.isend(np.ones(1), group_dst=1, group=pair[0])
    assert distlite.recv(into[:1], group_src=0, group=pair[1]) == 0


def test_order_with_later_sync_calls(pair):
    def run(group):
        tensor = np.ones(1)
        works = []
        for _ in range(20):
            works.append(distlite.all_reduce(tensor, group=group, async_op=True))
            if len(works) % 5 == 0:
                distlite.all_reduce(tensor, group=group)
                assert all(work.is_completed() for work in works)
        distlite.barrier(group)
        return tensor[0]

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(run, pair)] == [2.0**24] * 2


def test_then_and_callbacks_and_collect_all(pair):
    tensors, works = reduce_both(pair)
    futures = [work.get_future() for work in works]
    seen, done = [], threading.Event()
    futures[0].add_done_callback(lambda future: seen.append(future.value()[0] is None))
    sums = [future.then(lambda future: future.value()[0].sum()) for future in futures]
    every = collect_all(sums)
    every.add_done_callback(lambda _: done.set())
    assert done.wait(LONG)
    assert [future.value() for future in every.value()] == [9.0, 9.0]
    assert seen == [False]
    # Registered when it is over already.
    assert futures[0].then(lambda _: threading.get_ident()).value()
    failing = futures[0].then(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        failing.wait()
    assert len(tensors) == 2


def test_futures_by_hand(capfd):
    future = Future()
    assert not future.done()
    with pytest.raises(RuntimeError, match="not done"):
        future.value()
    future.add_done_callback(lambda _: 1 / 0)
    following = future.then(lambda done: done.value() + 1)
    future.set_result(1)
    assert (future.wait(), following.wait()) == (1, 2)
    assert "ZeroDivisionError" in capfd.readouterr().err
    with pytest.raises(RuntimeError, match="completed Future"):
        future.set_result(2)
    with pytest.raises(AssertionError):
        Future().set_exception("text")
    failed = Future()
    failed.set_exception(KeyError("x"))
    with pytest.raises(KeyError):
        wait_all([future, failed])
    assert collect_all([]).wait() == []


def test_works_have_one_deadline(pair):
    works = [distlite.irecv(np.zeros(3), group=pair[0], tag=i) for i in range(4)]
    since = time.monotonic()
    with pytest.raises(DistBackendError, match="waiting for recv timed out") as caught:
        wait_all([*works, Future()], timeout=0.5)
    assert 0.5 <= time.monotonic() - since < 0.5 + SOON
    assert [note[:30] for note in caught.value.__notes__] == [
        f"number {i} of the list failed as" for i in range(1, 5)
    ]
    assert "TimeoutError: the future is not done" in caught.value.__notes__[-1]
    pair[0].abort()


def test_the_first_failure_has_the_others_as_notes(pair):
    tensors, sums = reduce_both(pair)
    failed = [Future(), Future()]
    for number, future in enumerate(failed):
        future.set_exception(KeyError(number))
    for _ in range(2):  # a note is not added again
        with pytest.raises(KeyError, match="0") as caught:
            wait_all([*failed, *sums, failed[0]])
        assert caught.value.__notes__ == [
            "number 1 of the list failed as well: KeyError: 1",
            "number 4 of the list failed as well: KeyError: 0",
        ]
    # What follows a failure is waited for, too.
    assert [tensor.tolist() for tensor in tensors] == [[3.0] * 3] * 2


def test_waiting_for_several_is_of_seconds_or_a_timedelta(pair):
    assert wait_all([], timeout=-1) == []
    _, sums = reduce_both(pair)
    assert wait_all(sums, datetime.timedelta(seconds=LONG)) == [True, True]
    assert wait_all(sums, timeout=0) == [True, True]
    with pytest.raises(TypeError, match="timeout must be a datetime.timedelta or"):
        wait_all(sums, "3")


def test_await(pair):
    async def main():
        tensors, works = reduce_both(pair)
        results = await asyncio.gather(*map(ended, works))
        assert [result[0] for result in results] == tensors
        assert await works[0] == [tensors[0]]
        pair[1].abort()
        with pytest.raises(DistBackendError):
            await distlite.all_reduce(tensors[1], group=pair[1], async_op=True)

    async def ended(work):
        return await work

    asyncio.run(asyncio.wait_for(main(), LONG))


def test_abort_from_another_thread(pair):
    works = [
        distlite.all_reduce(np.ones(3), group=pair[0], async_op=True) for _ in range(3)
    ]
    future = works[2].get_future()
    timer = threading.Timer(0.1, pair[0].abort)
    timer.start()
    for wait in (works[0].wait, works[1].wait, future.wait, works[0].wait):
        with pytest.raises(DistBackendError, match="abort"):
            wait()
    timer.join()
    assert isinstance(works[1].exception(), DistBackendError)
    assert works[1].is_completed() and not works[1].is_success()


def test_a_disagreement_fails_all_that_is_queued(pair):
    first = distlite.all_reduce(np.ones(3), group=pair[0], async_op=True)
    second = distlite.all_reduce(np.ones(3), group=pair[0], async_op=True)
    with pytest.raises(DistBackendError, match="rank 1 called"):
        distlite.all_reduce(np.ones(4), group=pair[1])
    for work in (first, second):
        with pytest.raises(DistBackendError, match="rank 1 called"):
            work.wait()


def test_a_death_fails_all_that_is_queued():
    outcomes = rank_outcomes(async_ranks.died_while_queued, 2)
    assert outcomes[0].is_good, outcomes[0].describe()
    assert len(outcomes[0].value) == 4
    assert all("rank 1" in error for error in outcomes[0].value)


def test_ctrl_c_in_wait():
    (delay, own), (_, peers) = run_ranks(async_ranks.interrupted_wait, 2)
    assert 0 <= delay < SOON
    # Who waits may be the one who carries it out: it is given up, as a sync one is.  Or
    # the lane's thread has it, which hears of no signal.
    if own != "" or peers != "":
        assert "interrupted" in own
        assert "rank 0" in peers and "interrupted" in peers


@pytest.mark.parametrize("how", ["plain", "callback"])
def test_works_at_the_interpreters_end(how):
    run_ranks(async_ranks.works_at_exit, 2, how=how)


def test_a_forked_child_cannot_wait_for_its_parents_operations():
    found, _ = run_ranks(async_ranks.wait_in_a_forked_child, 2)
    why = "was started by process PARENT; a forked child cannot wait for it"
    assert found == [f"all_reduce {why}", f"recv {why}", "True"]
