# SPDX-License-Identifier: BSD-3-Clause
"""The descriptions of calls on objects, which are kept."""

import distlite
from distlite.groups.world import world
from distlite.objects import object_call


def described():
    name = "broadcast_object_list"
    return object_call.begin(object_call.BROADCAST, name, None, (0, None), None)


def test_a_call_is_described_once_until_the_ranks_or_the_mode_change():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        first = described()
        assert described() is first
        world.groups[group].ranks = [0]
        second = described()
        assert second is not first and described() is second
        distlite.set_safe_objects(True)
        assert described().kind == object_call.SAFE
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        assert described().group is group
