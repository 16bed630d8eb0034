# SPDX-License-Identifier: BSD-3-Clause
"""Works of one's own: what backends written in Python return from their methods."""

import asyncio
import gc
import weakref
from datetime import timedelta

import numpy as np
import pytest

import distlite
from distlite import Backend, Future, HashStore, P2POp, ProcessGroup, Work
from distlite.data_parallel import GradientReducer
from distlite.distributed_c10d import _coalescing_manager, _create_work_from_future
from distlite.groups.group_methods import CoalescedWork
from distlite.groups.packing import Coalesced


class Mine(Work):
    """Ended, with a value or an error."""

    def __init__(self, value=None, error=None, source=0):
        super().__init__()
        self.value, self.error, self.source = value, error, source
        self.waits = []

    def wait(self, *limit):
        self.waits.append(limit)
        if self.error is not None:
            raise self.error
        return True

    def is_completed(self):
        return True

    def exception(self):
        return self.error

    def result(self):
        return self.value

    def _source_rank(self):
        return self.source

    def get_future(self):
        future = Future()
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.value)
        return future


class Alone(ProcessGroup):
    """A backend of one rank."""

    error = None

    def __init__(self, rank, size):
        super().__init__(rank, size)
        self.made = []

    def _done(self, value, source=0):
        self.made.append(Mine(value, self.error, source))
        return self.made[-1]

    def allreduce(self, tensors, opts):
        return self._done(tensors)

    def broadcast(self, tensors, opts):
        return self._done(tensors)

    def allgather(self, outputs, inputs, opts):
        outputs[0][0][...] = inputs[0]
        return self._done(outputs[0])

    def _allgather_base(self, output, input, opts):
        output[...] = input
        return self._done([output])

    def send(self, tensors, dst, tag):
        return self._done(tensors)

    def recv(self, tensors, src, tag):
        tensors[0][...] = 7
        return self._done(tensors)

    def recv_anysource(self, tensors, tag):
        tensors[0][...] = 8
        return self._done(tensors)


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(Backend, "_plugins", {})
    lists = {"backend_list": list, "backend_capability": dict, "backend_type_map": dict}
    for name, copy in lists.items():
        monkeypatch.setattr(Backend, name, copy(getattr(Backend, name)))
    Backend.register_backend(
        "alone", lambda s, rank, n, t: Alone(rank, n), False, "cpu"
    )
    distlite.init_process_group("alone", store=HashStore(), rank=0, world_size=1)
    yield distlite.group.WORLD
    distlite.destroy_process_group()


def test_what_a_bare_one_says():
    work = Work()
    assert (work.is_completed(), work.is_success(), work.exception()) == (
        *(False, False, None),
    )
    assert work._get_op_type() == 100
    assert repr(work).startswith("<distlite.Work object at 0x")
    for name in ("wait", "synchronize", "result", "get_future"):
        missing = "wait" if name == "synchronize" else name
        with pytest.raises(
            NotImplementedError, match=rf"^distlite.Work.* {missing}\(\)"
        ):
            getattr(work, name)()
    with pytest.raises(RuntimeError, match=r"^sourceRank\(\) may only be called"):
        work.source_rank()
    with pytest.raises(TypeError, match=r"^Work\(\) takes no arguments"):
        Work(5)


def test_what_is_overridden_serves_the_rest():
    work = Mine(3)
    work.synchronize()
    assert work.waits == [()]

    async def wait():
        return await work

    assert asyncio.run(wait()) == 3


def test_it_goes_away_with_its_cycles():
    work = Mine()
    work.itself = work
    gone = weakref.ref(work)
    del work
    gc.collect()
    assert gone() is None


def test_all_of_ours_are_works():
    future = Future()
    work = _create_work_from_future(future)
    assert isinstance(work, Work)
    assert not work.is_completed()
    future.set_result([1])
    assert (work.wait(), work.is_success(), work.result()) == (True, True, [1])
    work.synchronize()


def test_functions_take_it(world):
    array = np.ones(2)
    distlite.all_reduce(array)
    assert world.made[-1].waits == [()]
    work = distlite.all_reduce(array, async_op=True)
    assert work is world.made[-1]
    assert work.waits == []
    assert distlite.wait_all([work, work.get_future()]) == [True, [array]]
    assert distlite.recv(array) == 0
    assert array.tolist() == [8.0, 8.0]
    world.error = ValueError("mine")
    for call in (
        lambda: distlite.all_reduce(array),
        lambda: distlite.recv(array, 0),
        lambda: distlite.all_reduce_coalesced([array], async_op=True).wait(),
    ):
        with pytest.raises(ValueError, match="^mine$"):
            call()


def test_several_at_once(world):
    first, second = np.ones(2), np.ones(2)
    future = distlite.all_reduce_coalesced([first, second], async_op=True)
    assert future.wait() == [first, second]
    ops = [P2POp(distlite.isend, first, 0), P2POp(distlite.irecv, second, 0)]
    works = distlite.batch_isend_irecv(ops)
    assert [type(work) for work in works] == [Mine, Mine]
    assert second.tolist() == [7.0, 7.0]
    with _coalescing_manager(async_ops=True) as manager:
        distlite.all_reduce(first)
        distlite.all_reduce(second)
    [work] = manager.works
    assert isinstance(work, Work)
    assert work.wait() is work.wait(timedelta(seconds=1)) is True
    assert world.made[-2].waits == [(), (timedelta(seconds=1),)]
    assert work.get_future().wait() == work.result() == [first, second]
    assert world.allreduce_coalesced([first]).is_completed()


@pytest.mark.parametrize("timeout", [60.0, timedelta(seconds=60)])
def test_several_works_have_one_timeout(timeout):
    """What the first one took, the second one does not have."""
    works = [Mine(), Mine()]
    CoalescedWork(Coalesced([], works)).wait(timeout)
    assert works[0].waits == [(timeout,)]
    [[left]] = works[1].waits
    assert 0 * timeout < left < timeout


@pytest.mark.parametrize("timeout", [0, -1.0, timedelta(0)])
def test_no_timeout_of_several_works_stays_none(timeout):
    works = [Mine(), Mine()]
    CoalescedWork(Coalesced([], works)).wait(timeout)
    assert [each.waits for each in works] == [[(timeout,)]] * 2


def test_training_goes_over_it(world):
    gradients = {"weight": np.arange(4, dtype=np.float32)}
    reducer = GradientReducer(gradients)
    reducer.ready("weight")
    reducer.finish()
    assert world.made[-1].waits == [()]
    assert gradients["weight"].tolist() == [0.0, 1.0, 2.0, 3.0]
