# SPDX-License-Identifier: BSD-3-Clause
"""The memory that arrays in received objects lie in."""

import pickle

import numpy as np
import pytest

from distlite import _C, HashStore, ProcessGroup
from distlite.objects.object_message import SPARE_LEAST, empty

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_waits():
    _C._clear_spare_memory()
    yield
    _C._clear_spare_memory()


def resident() -> int:
    with open("/proc/self/status") as lines:
        line = next(line for line in lines if line.startswith("RssAnon:"))
    return int(line.split()[1]) << 10


def place(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_it_is_used_again_when_the_last_view_is_gone():
    first = empty(4 * MIB)
    at = place(first)
    first[:] = 1
    view = pickle.loads(
        pickle.dumps(np.ones(4 * MIB, np.uint8), 5, buffer_callback=lambda _: False),
        buffers=[first],
    )[MIB : 2 * MIB]
    assert view.flags.writeable and place(view) == at + MIB
    del first
    second = empty(4 * MIB)
    assert place(second) != at
    second[:] = 2
    assert (view == 1).all()
    del view
    third = empty(3 * MIB + 1)
    assert place(third) == at and len(third) == 3 * MIB + 1
    third[:] = 3
    assert (second == 2).all()


def test_little_of_it_waits():
    before = resident()
    for mib in [*range(1, 64, 9)] * 4:
        kept = empty(mib * MIB)
        kept[::4096] = 1
    del kept
    assert resident() - before < (256 + 8) * MIB
    _C._clear_spare_memory()
    assert resident() - before < 8 * MIB


def test_small_arrays_lie_elsewhere():
    assert empty(SPARE_LEAST - 1).flags.owndata
    assert not empty(SPARE_LEAST).flags.owndata
    assert len(empty(0)) == 0


@pytest.mark.parametrize("size", [0, -1])
def test_no_memory_of_no_size(size):
    with pytest.raises(ValueError, match=f"size must be positive, but is {size}"):
        _C._SpareMemory(size)
    alone = ProcessGroup(HashStore(), 0, 1)
    with pytest.raises(ValueError, match=f"size must be positive, but is {size}"):
        _C._SharedMemory(alone, size)
    with pytest.raises(TypeError, match="group must be a ProcessGroup, not int"):
        _C._SharedMemory(3, size)


def test_more_than_there_is():
    with pytest.raises(MemoryError):
        empty(1 << 62)
