# SPDX-License-Identifier: BSD-3-Clause
"""The descriptions of calls on objects, which are kept."""

import gc
import pickle
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import distlite
from distlite import _C
from distlite.objects import object_call
from distlite.objects.safe_codec import encode

NAME = "broadcast_object_list"
OP = object_call.BROADCAST


def described(root=0, safe=None):
    return _C._kept_call(OP, None, root, None, safe) or object_call.begin_call(
        OP, NAME, None, (root, None), safe
    )


def kept(root, call=None):
    """Keeps the call, if it is given, and returns the one that is kept."""
    if call is not None:
        call.keep(None, root, None, None)
    return _C._kept_call(OP, None, root, None, None)


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
        described()
        for other in (
            (object_call.GATHER, None, 0, None, None),
            (OP, None, None, 0, None),
            (OP, None, 0, None, False),
            (OP, None, True, None, None),
            (OP, None, 1 << 70, None, None),
            (OP, "group", 0, None, None),
        ):
            assert _C._kept_call(*other) is None
    assert kept(0) is None


def test_as_many_calls_are_kept_as_a_group_is_likely_to_have():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        calls = [object_call.Call() for _ in range(129)]
        for each in calls:
            each.group, each.op = group, OP
        for root in range(128):
            kept(root, calls[root])
        assert [kept(root) for root in range(128)] == calls[:128]
        again = described(np.int64(7))
        assert again is calls[7]
        assert kept(7, calls[128]) is calls[128]
        assert [kept(root) for root in range(128) if root != 7] == [
            *calls[:7],
            *calls[8:128],
        ]
        assert kept(128, calls[7]) is calls[7]
        assert kept(0) is None and kept(1) is calls[1]


def test_a_choice_that_is_no_bool_is_read_at_each_call():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ):
        choice = []
        assert described(safe=choice).kind == 0
        choice.append(1)
        assert described(safe=choice).kind == object_call.SAFE
        assert described(safe=np.True_).kind == object_call.SAFE


@pytest.mark.parametrize("when", ["before it is kept", "after the others are dropped"])
def test_a_thread_that_describes_a_call_meanwhile_keeps_no_former_mode(
    when, monkeypatch
):
    describe, forget = object_call.begin_anew, _C._forget_calls

    def describe_and_set(*arguments):
        call = describe(*arguments)
        distlite.set_safe_objects(True)
        return call

    def forget_and_describe(group):
        forget(group)
        described()

    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ):
        with monkeypatch.context() as patched:
            if when == "before it is kept":
                patched.setattr(object_call, "begin_anew", describe_and_set)
                described()
            else:
                patched.setattr(_C, "_forget_calls", forget_and_describe)
                distlite.set_safe_objects(True)
        assert described().kind == object_call.SAFE


def test_calls_are_dropped_with_their_group_s_place_in_the_world():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ):
        group = distlite.new_group()
        distlite.broadcast_object_list([0], 0, group)
        assert _C._kept_call(OP, group, 0, None, None) is not None
        distlite.distributed_c10d._unregister_process_group(group.group_name)
        assert _C._kept_call(OP, group, 0, None, None) is None
        group.shutdown()


def look_at_lists():
    """Fails if a list has places without an object, which Python code must not see."""
    lists = [each for each in gc.get_objects() if type(each) is list and len(each) == 1]
    assert all(len(gc.get_referents(each)) == 1 for each in lists)


class Looking:
    def __reduce__(self):
        look_at_lists()
        return look_at_lists, ()


def test_pickles_see_no_list_that_is_not_filled():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ):
        found = [0]
        distlite.scatter_object_list(found, [Looking()])
        assert found == [None]


class Emptying:
    def __init__(self, items):
        self.items = items

    def __reduce__(self):
        self.items.clear()
        return int, ()


def test_a_later_call_refuses_what_the_first_one_refuses():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ):
        for _ in range(2):
            with pytest.raises(IndexError, match="a list of 0 is too short"):
                distlite.all_gather_object([], 1)
            with pytest.raises(TypeError, match="must be a list"):
                distlite.gather_object(1, {})
            with pytest.raises(ValueError, match="must be specified on destination"):
                distlite.gather_object(1)
            with pytest.raises(ValueError, match="to be a list of size at least 1"):
                distlite.scatter_object_list([], [1])
            with pytest.raises(ValueError, match="has 2 objects for 1 ranks"):
                distlite.scatter_object_list([None], [1, 2])
            with pytest.raises(TypeError, match="must be a list"):
                distlite.broadcast_object_list("text")
            with pytest.raises(ValueError, match="Invalid destination rank"):
                distlite.send_object_list([1], 0)
            with pytest.raises(ValueError, match="Invalid source rank"):
                distlite.recv_object_list([1], 0)
            emptied = [None]
            with pytest.raises(IndexError):
                distlite.all_gather_object(emptied, Emptying(emptied))
            found = [None, None]
            distlite.all_gather_object(found, 1)
            distlite.gather_object(2, found)
            distlite.scatter_object_list(found, (3,))
            distlite.broadcast_object_list((1,))
            assert found == [3, None]


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
        call.keep()
    with pytest.raises(TypeError, match="is missing argument 'group'"):
        _C._kept_call(OP)


class Moving(object_call.Call):
    """An all_gather of one rank, which gets its block as another stream if one is
    set."""

    block = b""
    answer = None

    def __init__(self, group):
        self.group, self.name, self.op = group, "all_gather", object_call.ALL_GATHER
        self.rank, self.root, self.size, self.in_python = 0, -1, 1, True

    def move(self, block):
        if self.answer is not None:
            message = object_call.message_of(self.answer)
            block = object_call.block_of(self, message, 1)
        self.block = block
        return block

    def stream(self):
        return bytes(object_call.Header(self.block).stream())


@pytest.fixture
def moving():
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        yield Moving(group)


class Text(str):
    pass


PLAIN = [
    *(None, True, False, 0, -1, 255, 256, (1 << 63) - 1, 1 - (1 << 63)),
    *(0.5, float("inf"), "", "a", "\xe9\u20ac\U0001f600", "\udc80", b"", b"\x80b"),
    *([], (), {}, [1, (2.5, ["x"]), {}], {"b": 1, "a": [None], 3: (), (4,): b"5"}),
    {"step": 17, "loss": 0.25, "name": "run", "sizes": [1, 2, 3]},
    *({-1: "of one", -2: "hash"}, {f"key {i}": i for i in range(20)}),
    *("x" * 477, [[i] for i in range(31)]),
]


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_small_plain_values_travel_as_data(moving, value):
    (found,) = moving.exchange(value, 1, None)
    assert found == value and repr(found) == repr(value)
    assert moving.stream() == bytes(encode(value)[0])


SHARED, LOOP = [1], []
LOOP.append(LOOP)
OTHERS = [
    *(Text("a"), 1 << 63, 1j, {1}, [Text("a")], {Text("key"): 1}, (1, [2j])),
    *(
        "\xe9" * 300,
        "x" * 478,
        b"x" * 479,
        [0] * 479,
        [0.5] * 60,
        {i: i for i in range(130)},
    ),
    *([[i] for i in range(40)], {"a": "x" * 400, "b": "y" * 400}),
    *([SHARED, SHARED], {"a": SHARED, "b": (SHARED,)}),
]


@pytest.mark.parametrize("value", OTHERS, ids=range(len(OTHERS)))
def test_all_others_travel_as_pickles(moving, value):
    (found,) = (
        moving.exchange(value, 1, None)
        if len(pickle.dumps(value, 5)) <= object_call.ROOM
        else received(value)
    )
    assert found == value and type(found) is type(value)
    assert not moving.block or moving.stream() == pickle.dumps(value, 5)


def received(value):
    found = [None]
    distlite.all_gather_object(found, value)
    return found


def test_what_objects_share_is_shared_by_their_copies(moving):
    (found,) = moving.exchange([SHARED, (SHARED,)], 1, None)
    assert found[0] is found[1][0]
    (found,) = moving.exchange(LOOP, 1, None)
    assert found[0] is found


def test_a_few_keys_of_one_hash_are_accepted(moving):
    value = {number * sys.hash_info.modulus + 1: None for number in range(5)}
    moving.answer = bytes(encode(value)[0])
    assert moving.exchange(None, 1, None) == [value]


@pytest.mark.parametrize(
    "stream", [b"", b"N0", b"l", b"l\x05N", b"d\x01lNN", b"q", b"i\xff", b"\x80"]
)
def test_a_stream_that_is_malformed_is_told(moving, stream):
    moving.answer = stream
    with pytest.raises(distlite.DistBackendError, match="from rank 0 cannot be loaded"):
        moving.exchange(None, 1, None)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(PLAIN), st.integers(0, 99), st.integers(0, 3), st.binary(max_size=4)
)
def test_changed_bytes_never_do_more_than_fail(value, at, cut, by):
    stream = encode(value)[0]
    stream[at : at + cut] = by
    with distlite.process_group(
        backend="gloo", store=distlite.HashStore(), rank=0, world_size=1
    ) as group:
        moving = Moving(group)
        moving.kind = object_call.SAFE
        moving.answer = bytes(stream[: object_call.ROOM])
        try:
            moving.exchange(None, 1, None)
        except distlite.DistBackendError as error:
            assert "cannot be loaded" in str(error)
