# SPDX-License-Identifier: BSD-3-Clause
"""Collected operations, labels, works of futures, and the rarer forms of reductions."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta

import ml_dtypes
import numpy as np
import pytest

import distlite
from distlite import DistBackendError, Future, HashStore, ReduceOp
from distlite.distributed_c10d import _create_work_from_future
from distlite.groups.coalescing import _coalescing_manager
from distlite.groups.packing import Coalesced


@pytest.fixture(autouse=True)
def world():
    distlite.init_process_group(store=HashStore(), rank=0, world_size=1)
    yield
    distlite.destroy_process_group()


def sequence():
    return distlite.group.WORLD._get_sequence_number_for_group()


def test_nothing_runs_before_the_end():
    array = np.ones(2)
    with _coalescing_manager():
        twice = ReduceOp.PREMUL_SUM(2.0)
        assert distlite.all_reduce(array, twice) is None
        assert distlite.all_reduce(array, twice) is None
        assert (array.tolist(), sequence()) == ([1.0, 1.0], 0)
    # One operation, as in torch: each is read before any is written to.
    assert (array.tolist(), sequence()) == ([2.0, 2.0], 2)
    distlite.all_reduce(array, twice)
    assert array.tolist() == [4.0, 4.0]


def doubled(arrays):
    """By all ways to reduce several at once."""
    twice = ReduceOp.PREMUL_SUM(2.0)
    group = distlite.group.WORLD

    def managed(is_async):
        with _coalescing_manager(async_ops=is_async) as manager:
            for array in arrays:
                distlite.all_reduce(array, twice)
        if is_async:
            manager.wait()

    return {
        "sync": lambda: distlite.all_reduce_coalesced(arrays, twice),
        "async": lambda: distlite.all_reduce_coalesced(
            arrays, twice, async_op=True
        ).wait(),
        "method": lambda: group.allreduce_coalesced(arrays, twice).wait(),
        "future": lambda: group.allreduce_coalesced(arrays, twice).get_future().wait(),
        "manager": lambda: managed(False),
        "async manager": lambda: managed(True),
    }


WAYS = list(doubled([]))


@pytest.mark.parametrize("way", WAYS)
def test_arrays_that_share_memory_are_reduced_once(way):
    whole = np.arange(1.0, 11.0)
    one, apart = np.ones(3), np.full(2, 5.0)
    views = [whole[:6], whole[4:], one, apart, one, whole[::-2], whole[:0]]
    doubled(views)[way]()
    assert whole.tolist() == [2.0 * (i + 1) for i in range(10)]
    assert (one.tolist(), apart.tolist()) == ([2.0] * 3, [10.0] * 2)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_of_ml_dtypes_are_reduced_at_once(name):
    whole = np.arange(4).astype(getattr(ml_dtypes, name))
    apart = np.ones(2, whole.dtype)
    distlite.all_reduce_coalesced([whole[:3], whole[1:], apart])
    assert whole.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert apart.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("is_list", [True, False])
def test_inputs_are_read_before_outputs_are_written(is_list):
    first, second = np.array([1.0]), np.array([2.0])
    outputs = [second, np.zeros(1)]
    if is_list:
        distlite.all_gather_coalesced([outputs], [first, second])
    else:
        with _coalescing_manager():
            distlite.all_gather_single(outputs[0], first)
            distlite.all_gather_single(outputs[1], second)
    assert [float(each[0]) for each in outputs] == [1.0, 2.0]


def test_each_has_its_own_reduction():
    first, second = np.ones(2), np.ones(2)
    with _coalescing_manager():
        distlite.all_reduce(first, ReduceOp.PREMUL_SUM(2.0))
        distlite.all_reduce(second, ReduceOp.PREMUL_SUM(3.0))
    assert (first[0], second[0]) == (2.0, 3.0)


@pytest.mark.parametrize("kind", ["all_gather_single", "reduce_scatter_single"])
def test_other_kinds(kind):
    output, input = np.zeros(3), np.arange(3.0)
    with _coalescing_manager(async_ops=True) as manager:
        getattr(distlite, kind)(output, input)
        assert output.tolist() == [0.0, 0.0, 0.0]
    assert len(manager.works) == 1
    assert manager.works[0].result()[0] is output
    manager.wait()
    assert output.tolist() == [0.0, 1.0, 2.0]


def test_there_is_nothing_to_wait_for_inside():
    array = np.ones(2)
    with _coalescing_manager():
        work = distlite.all_reduce(array, async_op=True)
        for name in ("wait", "is_success", "exception", "result", "source_rank"):
            text = f"^Illegal to call {name} on IllegalWork object$"
            with pytest.raises(ValueError, match=text):
                getattr(work, name)()
    with _coalescing_manager() as manager:
        pass
    assert manager.works == []


def test_others_run_at_once():
    with _coalescing_manager():
        distlite.broadcast(np.ones(2), 0)
        distlite.barrier()
        assert sequence() == 2


def test_kinds_are_not_mixed():
    array, output = np.ones(2), np.zeros(2)
    with (
        pytest.raises(RuntimeError, match="to be the same type, but got mixed types"),
        _coalescing_manager(),
    ):
        distlite.all_reduce(array)
        distlite.all_gather_single(output, array)
    # What was collected is dropped, and leaves no trace.
    assert sequence() == 0
    with _coalescing_manager():
        distlite.all_reduce(array)
    assert sequence() == 1


def test_not_inside_each_other():
    with (
        pytest.raises(ValueError, match="non-empty op list at the start of coalescing"),
        _coalescing_manager(),
        _coalescing_manager(),
    ):
        pass
    distlite.all_reduce(np.ones(1))
    assert sequence() == 1


def test_outside_of_the_group():
    with _coalescing_manager(-100) as manager, pytest.warns(UserWarning):
        distlite.all_reduce(np.ones(1), group=-100)
    assert manager.works == []


def test_works_of_futures():
    future = Future()
    work = _create_work_from_future(future)
    assert not work.is_completed() and not work.is_success()
    assert work.exception() is None
    threading.Timer(0.01, future.set_result, [[1]]).start()
    assert work.wait() is True
    assert work.is_success() and work.result() == [1]
    assert work.get_future() is future
    failed = Future()
    failed.set_exception(ValueError("boom"))
    work = _create_work_from_future(failed)
    assert work.is_completed() and not work.is_success()
    assert str(work.exception()) == "boom"
    with pytest.raises(ValueError, match="^boom$"):
        work.wait()


def test_labels_are_given_back():
    from distlite import _C

    with distlite.record_comm("outer"):
        with distlite.record_comm("inner"):
            assert _C._set_call_label("inner") == "inner"
        assert _C._set_call_label("outer") == "outer"
    assert _C._set_call_label(None) is None
    with pytest.raises(TypeError), distlite.record_comm(5):
        pass


def test_a_label_stands_for_the_function():
    level, store = distlite.get_debug_level(), HashStore()
    distlite.set_debug_level(distlite.DebugLevel.DETAIL)

    def run(rank):
        texts = []
        first, second = (
            distlite.record_comm(f"{word} {rank}") for word in ("on", "in")
        )
        for label in first, second, nullcontext():
            own = distlite.PrefixStore(str(len(texts)), store)
            group = distlite.ProcessGroup(own, rank, 2)
            with pytest.raises(RuntimeError) as caught, label:
                distlite.all_reduce(np.ones(rank + 1), group=group)
            texts.append(str(caught.value))
        return texts

    try:
        with ThreadPoolExecutor(2) as threads:
            for first, second, plain in threads.map(run, range(2)):
                assert "in on 0" in first and "in on 1" in first
                assert "in in 0" in second and "in in 1" in second
                assert "in run" in plain and "in on" not in plain
    finally:
        distlite.set_debug_level(level)


def test_labels_without_end_give_way_to_the_function():
    level, store = distlite.get_debug_level(), HashStore()
    distlite.set_debug_level(distlite.DebugLevel.DETAIL)

    def reduce_labelled(group, label, size):
        with distlite.record_comm(label):
            distlite.all_reduce(np.ones(size), group=group)

    def run(rank):
        group = distlite.ProcessGroup(store, rank, 2)
        for step in range(100):
            reduce_labelled(group, f"step {step}", 1)
        with pytest.raises(RuntimeError, match="in reduce_labelled"):
            reduce_labelled(group, "last", rank + 1)

    try:
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(run, range(2)))
    finally:
        distlite.set_debug_level(level)


def test_what_complex_numbers_can():
    able = [op.name for op in ReduceOp.RedOpType if distlite.supports_complex(op)]
    assert able == ["SUM", "AVG", "PREMUL_SUM"]
    assert distlite.supports_complex(ReduceOp(ReduceOp.SUM))
    assert not distlite.supports_complex(ReduceOp(ReduceOp.MAX))


class Slow:
    """An array whose contents another thread waits for as well."""

    def __init__(self, begun_by):
        self.begun_by, self.events = begun_by, []

    def __setitem__(self, where, what):
        if not self.events:
            self.events.append("begun")
            other = threading.Thread(target=self.finish_too)
            other.start()
            # Ends only where the other thread does not wait for this one.
            other.join(0.5)
            self.events.append("copied")

    def finish_too(self):
        self.begun_by[0].finish()
        self.events.append("told")


def test_nobody_is_told_before_the_results_are_there():
    begun_by = []
    array = Slow(begun_by)
    begun_by.append(Coalesced([array], [], [(array, 3)]))
    begun_by[0].finish()
    assert array.events[:2] == ["begun", "copied"]


def test_an_interrupted_end_is_made_up_for():
    class Interrupted(list):
        is_first = True

        def __setitem__(self, where, what):
            if self.is_first:
                self.is_first = False
                raise KeyboardInterrupt
            super().__setitem__(slice(None), what)

    array = Interrupted([0])
    begun = Coalesced([array], [], [(array, [3])])
    with pytest.raises(KeyboardInterrupt):
        begun.finish()
    begun.finish()
    begun.finish()
    assert array == [3]


@pytest.mark.parametrize("timeout", [0.01, timedelta(milliseconds=10)])
def test_a_work_of_a_future_waits_no_longer_than_it_is_told(timeout):
    future = Future()
    work = _create_work_from_future(future)
    with pytest.raises(DistBackendError, match="timed out after 10ms"):
        work.wait(timeout)
    threading.Timer(0.05, future.set_result, (3,)).start()
    assert work.wait(60.0) is True
    assert work.wait(timeout) is True
    with pytest.raises(TypeError, match="timeout"):
        work.wait("5")
