# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that get other memory while an operation on them is pending."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from pending import hold_back

import distlite
from distlite import DistBackendError, HashStore, ProcessGroup

torch = pytest.importorskip("torch")

LONG = 60.0
COUNT = 1 << 14


@pytest.fixture
def pair():
    store = HashStore()
    with ThreadPoolExecutor(2) as threads:
        joining = [
            threads.submit(ProcessGroup, store, rank, 2, LONG) for rank in range(2)
        ]
        groups = [each.result(LONG) for each in joining]
    yield groups
    for group in groups:
        group.shutdown()


def assign(tensor, whole):
    tensor.data = torch.zeros(3)


CHANGES = {
    "data": assign,
    "set_": lambda tensor, whole: tensor.set_(torch.zeros(COUNT)),
    "resize_": lambda tensor, whole: tensor.resize_(1 << 24),
    "of another that shares it": lambda tensor, whole: whole.resize_(1 << 24),
    "storage": lambda tensor, whole: tensor.untyped_storage().resize_(0),
}


def crowd():
    """Takes the memory that was given back, if any was."""
    return [torch.full((COUNT,), 7.0) for _ in range(20)]


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_its_memory_is_left_alone(pair, change):
    whole = torch.ones(2 * COUNT)
    tensor = (
        whole[COUNT:] if change == "of another that shares it" else torch.ones(COUNT)
    )
    let_begin = hold_back(pair)
    work = distlite.all_reduce(tensor, group=pair[0], async_op=True)
    CHANGES[change](tensor, whole)
    others = crowd()
    let_begin()
    with ThreadPoolExecutor(1) as thread:
        peer = thread.submit(distlite.all_reduce, np.ones(COUNT, "f4"), group=pair[1])
        with pytest.raises(DistBackendError, match="all_reduce: .*given other memory"):
            work.wait()
        with pytest.raises(DistBackendError, match="rank 0 .*given other memory"):
            peer.result(LONG)
    assert all(bool((other == 7).all()) for other in others)


@pytest.mark.parametrize("change", CHANGES)
def test_nobody_waits_and_it_is_left_alone_all_the_same(pair, change):
    whole = torch.ones(2 * COUNT)
    tensor = (
        whole[COUNT:] if change == "of another that shares it" else torch.ones(COUNT)
    )
    let_begin = hold_back(pair)
    work = distlite.all_reduce(tensor, group=pair[0], async_op=True)
    CHANGES[change](tensor, whole)
    others = crowd()
    let_begin()
    with pytest.raises(DistBackendError, match="rank 0 .*given other memory"):
        distlite.all_reduce(np.ones(COUNT, "f4"), group=pair[1])
    # The peer may learn of it before the work ends.
    with pytest.raises(DistBackendError, match="given other memory"):
        work.wait()
    assert all(bool((other == 7).all()) for other in others)


@pytest.mark.parametrize("count", [1 << 8, 1 << 18])
@pytest.mark.parametrize("change", CHANGES)
def test_a_message_for_memory_that_was_given_back_is_refused(pair, change, count):
    """Nobody waits for the receive: what looks is the thread that moves messages.

    A small send has ended by then.
    """
    whole = torch.zeros(2 * count)
    tensor = (
        whole[count:] if change == "of another that shares it" else torch.zeros(count)
    )
    work = distlite.irecv(tensor, group_src=1, group=pair[0])
    CHANGES[change](tensor, whole)
    others = [torch.full((count,), 7.0) for _ in range(20)]
    is_told = pytest.raises(DistBackendError, match="its array was moved")
    with is_told if count > 1 << 16 else contextlib.nullcontext():
        distlite.send(np.ones(count, "f4"), group_dst=0, group=pair[1])
    # The sender may learn of it before the work ends.
    with pytest.raises(DistBackendError, match="given other memory"):
        work.wait()
    assert all(bool((other == 7).all()) for other in others)


@pytest.mark.parametrize("change", CHANGES)
def test_a_large_message_stops_where_its_memory_was_given_back(pair, change):
    count = 1 << 22
    whole = torch.ones(2 * count)
    tensor = whole[count:]
    sending = distlite.isend(tensor, group_dst=1, group=pair[0])
    CHANGES[change](tensor, whole)
    with pytest.raises(DistBackendError, match="its array was moved"):
        distlite.recv(np.zeros(count, "f4"), group_src=0, group=pair[1])
    with pytest.raises(DistBackendError, match="given other memory"):
        sending.wait()


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_has_not_come_is_given_up(pair, change):
    whole = torch.zeros(2 * COUNT)
    tensor = whole[COUNT:]
    work = distlite.irecv(tensor, group_src=1, group=pair[0])
    CHANGES[change](tensor, whole)
    with pytest.raises(DistBackendError, match="given other memory"):
        work.wait()


def test_what_stays_in_place_is_reduced(pair):
    tensor = torch.ones(COUNT)
    works = [distlite.all_reduce(tensor, group=pair[0], async_op=True)]
    alias = tensor.view(2, -1)
    alias.requires_grad_(True)
    works.append(distlite.all_reduce(torch.ones(3), group=pair[0], async_op=True))
    for count in (COUNT, 3):
        distlite.all_reduce(np.ones(count, "f4"), group=pair[1])
    assert [work.wait() for work in works] == [True, True]
    assert bool((tensor == 2).all())
