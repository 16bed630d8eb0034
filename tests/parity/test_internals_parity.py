# SPDX-License-Identifier: BSD-3-Clause
"""Private names that other libraries use, beside torch."""

from datetime import timedelta

import pytest
from test_default_group import BOTH, agree, arrays, clean, init  # noqa: F401

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")

CALLS = {
    "resolved": lambda c10d, pg: c10d._resolve_process_group("0") is pg,
    "unresolved": lambda c10d, pg: c10d._resolve_process_group("none"),
    "ranks": lambda c10d, pg: c10d._world.pg_group_ranks[pg],
    "default": lambda c10d, pg: c10d._world.default_pg is pg,
}


@pytest.mark.parametrize("name", CALLS)
def test_they_answer_alike(name):
    def call(dist):
        init(dist)
        return CALLS[name](dist.distributed_c10d, dist.group.WORLD)

    agree(call)


def test_a_group_without_a_default_one_is_made_alike():
    def call(dist):
        c10d, store = dist.distributed_c10d, dist.HashStore()
        made, _ = c10d._new_process_group_helper(
            1, 0, [], "gloo", store, "joined", timeout=timedelta(seconds=60)
        )
        c10d._world.pg_group_ranks[made] = {0: 0}
        init(dist)
        values = arrays(dist)
        dist.broadcast(values, src=0, group=made)
        return made.rank(), made.size(), made.group_name, values.tolist()

    agree(call)
