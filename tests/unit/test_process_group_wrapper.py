# SPDX-License-Identifier: BSD-3-Clause
"""A single group whose ranks, threads here, compare what they call."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest

import distlite
from distlite import DistBackendError, HashStore, ProcessGroup
from distlite.distributed_c10d import _create_process_group_wrapper as wrap

LIMIT = timedelta(seconds=20)


def on_two_ranks(run):
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(run, range(2)))


def test_a_wrapped_group_compares():
    store = HashStore()

    def run(rank):
        plain = ProcessGroup(store, rank, 2, LIMIT, "plain")
        group = wrap(plain, "compared", store, rank, 2, LIMIT)
        array = np.full(2, rank + 1.0)
        distlite.all_reduce(array, group=group)
        assert (array.tolist(), group.wrapped_pg) == ([3.0, 3.0], plain)
        with pytest.raises(DistBackendError) as raised:
            # Which the engine itself would not mind.
            distlite.all_reduce(np.ones((2, 3) if rank else 6), group=group)
        distlite.all_reduce(np.ones((2, 3) if rank else 6), group=plain)
        return str(raised.value)

    for text in on_two_ranks(run):
        assert text.startswith("Detected mismatch between collectives on ranks. ")
        assert "Tensor shapes: [6] vs [2, 3]." in text


def test_what_is_not_wrapped():
    group = ProcessGroup(HashStore(), 0, 1, LIMIT)
    with pytest.raises(
        ValueError, match="^rank 1 of 2 was given, but the group .* rank 0 of 1 here$"
    ):
        wrap(group, "x", HashStore(), 1, 2)
    with pytest.raises(NotImplementedError, match="TORCH_DISTRIBUTED_DEBUG=DETAIL"):
        wrap(ProcessGroup(0, 1), "x", HashStore(), 0, 1)
