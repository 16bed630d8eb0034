# SPDX-License-Identifier: BSD-3-Clause
"""The descriptions of calls on objects, which are kept."""

import gc
import weakref

import pytest

import distlite
from distlite import _C
from distlite.objects import object_call

NAME = "broadcast_object_list"


def described():
    arguments = NAME, None, 0, None, None
    return _C._kept_call(*arguments) or object_call.begin(
        object_call.BROADCAST, NAME, None, (0, None), None
    )


def test_a_call_is_described_once_until_the_ranks_or_the_mode_change():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        first = described()
        assert described() is first
        group._set_global_ranks([0])
        second = described()
        assert second is not first and described() is second
        distlite.set_safe_objects(True)
        assert described().kind == object_call.SAFE
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        assert described().group is group


def test_only_calls_with_the_same_arguments_share_a_description():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ):
        first = described()
        for other in (
            ("gather_object", None, 0, None, None),
            (NAME, None, None, 0, None),
            (NAME, None, 0, None, False),
            (NAME, None, True, None, None),
            (NAME, None, 1 << 70, None, None),
            (NAME, "group", 0, None, None),
        ):
            assert _C._kept_call(*other) is None
        for root in range(20):
            first.keep(NAME, None, root, None, None)
        assert _C._kept_call(NAME, None, 19, None, None) is first
    assert _C._kept_call(NAME, None, 19, None, None) is None


def test_a_group_that_was_left_is_not_held_by_its_calls():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        gc.disable()
        described()
        left = weakref.ref(group)
    del group
    try:
        assert left() is None
    finally:
        gc.enable()


def test_what_is_no_call_is_refused():
    call = object_call.Call()
    with pytest.raises(TypeError, match="not a call of a group"):
        call.exchange([], 0, None)
    with pytest.raises(TypeError, match=r"exchange\(\) takes three"):
        call.exchange([])
    with pytest.raises(TypeError, match="is missing argument 'group'"):
        call.keep(NAME)
    with pytest.raises(TypeError, match="is missing argument 'group'"):
        _C._kept_call(NAME)
