# SPDX-License-Identifier: BSD-3-Clause
import copy
import gc
import pickle
import sys
import weakref
from datetime import timedelta

import numpy as np
import pytest

import distlite
from distlite import HashStore, ProcessGroup


def make(**keywords):
    return ProcessGroup(HashStore(), 0, 1, **keywords)


def test_says_what_it_is():
    store = HashStore()
    group = ProcessGroup(
        store,
        0,
        1,
        timedelta(seconds=5),
        group_name="7",
        group_desc="for tests",
        backend="gloo",
    )
    assert (group.rank(), group.size(), group.name()) == (0, 1, "gloo")
    assert (group.group_name, group.group_desc) == ("7", "for tests")
    assert group.timeout == timedelta(seconds=5)
    assert group.get_group_store() is store
    assert repr(group) == "<distlite.ProcessGroup '7' (for tests): rank 0 of 1, gloo>"


def test_defaults():
    group = make()
    assert group.timeout == timedelta(minutes=30) == distlite.default_pg_timeout
    assert (group.group_name, group.group_desc) == ("0", "undefined")
    assert group.name() == "cpu"


def test_timeout_can_be_set():
    group = make()
    group.set_timeout(timedelta(milliseconds=1500))
    assert group.timeout == timedelta(seconds=1.5)
    with pytest.raises(TypeError):
        group.set_timeout("long")


def test_counts_operations():
    group = make()
    before = group._get_sequence_number_for_group()
    distlite.barrier(group)
    distlite.all_reduce(np.zeros(2), group=group)
    assert group._get_sequence_number_for_group() == before + 2


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((), TypeError),
        ((5, 0, 1), TypeError),
        ((None, 0, 1), TypeError),
        ((HashStore(), "0", 1), TypeError),
        ((HashStore(), 0, 1.0), TypeError),
        ((HashStore(), 0, 1, "5"), TypeError),
        ((HashStore(), 0, 2**40), ValueError),
        ((HashStore(), 0, 0), ValueError),
        ((HashStore(), 1, 1), ValueError),
        ((HashStore(), -1, 1), ValueError),
        ((HashStore(), 0, 1, None, 5), TypeError),
        ((HashStore(), 0, 1, None, "0", 5), TypeError),
        ((HashStore(), 0, 1, None, "0", "", 5), TypeError),
    ],
)
def test_wrong_arguments(arguments, kind):
    with pytest.raises(kind):
        ProcessGroup(*arguments)


def test_unknown_backend():
    with pytest.raises((ValueError, NotImplementedError), match="bogus"):
        make(backend="bogus")


def test_alone_among_two_times_out():
    with pytest.raises(distlite.DistStoreError, match="100ms|rank 1"):
        ProcessGroup(HashStore(), 0, 2, timedelta(milliseconds=100))


def test_identity():
    one, other = make(), make()
    assert one == one
    assert one != other
    assert len({one, other, one}) == 2


@pytest.mark.parametrize("copier", [pickle.dumps, copy.copy, copy.deepcopy])
def test_is_not_copied(copier):
    with pytest.raises(TypeError, match="cannot pickle 'distlite.ProcessGroup' object"):
        copier(make())


def test_can_be_referenced_weakly():
    group = make()
    reference = weakref.ref(group)
    assert reference() is group
    del group
    gc.collect()
    assert reference() is None


def test_is_immutable():
    with pytest.raises((AttributeError, TypeError)):
        make().group_desc = "x"
    with pytest.raises(TypeError):
        ProcessGroup.rank = None


def test_can_be_subclassed():
    class Mine(ProcessGroup):
        pass

    group = Mine(HashStore(), 0, 1)
    group.own = group
    distlite.barrier(group)
    reference = weakref.ref(group)
    del group
    gc.collect()
    assert reference() is None


def test_gives_its_store_back():
    store = HashStore()
    before = sys.getrefcount(store)
    for _ in range(20):
        group = ProcessGroup(store, 0, 1)
        group.shutdown()
    del group
    gc.collect()
    assert sys.getrefcount(store) == before


def test_a_cycle_through_the_store_is_collected():
    class Kept(distlite.Store):
        def __init__(self):
            super().__init__()
            self.values = {}

        def set(self, key, value):
            self.values[key] = value

        def get(self, key):
            return self.values[key]

        def wait(self, keys, timeout=None):
            pass

    store = Kept()
    store.group = ProcessGroup(HashStore(), 0, 1)
    reference = weakref.ref(store.group)
    store.self = store
    del store
    gc.collect()
    assert reference() is None


def test_shutdown_and_abort_can_be_repeated():
    group = make()
    for _ in range(2):
        group.shutdown()
        group.abort()
