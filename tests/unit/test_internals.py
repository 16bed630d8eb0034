# SPDX-License-Identifier: BSD-3-Clause
"""Private names of torch.distributed that other libraries use."""

from datetime import timedelta

import numpy as np
import pytest

import distlite as dist
from distlite import distributed_c10d as c10d

LIMIT = timedelta(seconds=30)


@pytest.fixture
def group():
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_what_is_known_of_a_group(group):
    further = dist.new_group()
    assert c10d._world.default_pg is group
    assert c10d._world.pg_group_ranks[further] == {0: 0}
    c10d._world.pg_group_ranks[further] = {3: 0}
    assert dist.get_global_rank(further, 0) == 3
    with pytest.raises(ValueError, match="is not a numbering of 1 ranks"):
        c10d._world.pg_group_ranks[further] = {0: 0, 1: 1}


def test_a_group_made_by_hand_is_registered(group):
    made = dist.ProcessGroup(dist.HashStore(), 0, 1, LIMIT, "alone")
    c10d._register_process_group("alone", made)
    assert (dist.get_rank(made), dist.get_backend(made)) == (0, "cpu")
    assert c10d._resolve_process_group("alone") is made
    c10d._unregister_process_group("alone")
    with pytest.raises(RuntimeError, match="^Could not resolve .* the name alone$"):
        c10d._resolve_process_group("alone")
    with pytest.raises(ValueError, match="cannot be registered as another"):
        c10d._register_process_group("other", made)
    made.shutdown()


def test_names_of_the_package_itself():
    for name in ("_CoalescingManager", "_broadcast_coalesced"):
        assert getattr(dist, name) is getattr(c10d, name)
    for name in ("_nothing", "np"):
        with pytest.raises(AttributeError, match=name):
            getattr(c10d, name)


def test_a_group_beside_the_default_one(group):
    store = dist.HashStore()
    made, keys = c10d._new_process_group_helper(
        1, 0, [], "gloo", store, "joined", timeout=LIMIT, group_desc="two jobs"
    )
    assert isinstance(keys, dist.PrefixStore)
    assert (made.group_name, made.group_desc, made.timeout) == (
        "joined",
        "two jobs",
        LIMIT,
    )
    c10d._world.pg_group_ranks[made] = {7: 0}
    assert dist.get_process_group_ranks(made) == [7]
    values = np.ones(2)
    dist.broadcast(values, src=7, group=made)
    with pytest.raises(ValueError, match="^The specified group name has already been"):
        c10d._new_process_group_helper(1, 0, [], "gloo", store, "joined")
    assert c10d._new_process_group_helper(1, 0, [3], "gloo", store, "others") == (
        dist.GroupMember.NON_GROUP_MEMBER,
        None,
    )
    c10d._abort_process_group(made)
    with pytest.raises(ValueError, match="has been destroyed"):
        c10d._abort_process_group(made)
    assert dist.is_initialized()
    c10d._abort_process_group()
    assert not dist.is_initialized()
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
