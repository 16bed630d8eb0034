# SPDX-License-Identifier: BSD-3-Clause
"""Collectives of Python objects."""

import sys

import object_ranks
import pytest
from object_ranks import LARGE
from workers import SOON, run_ranks
from world_sizes import WORLD_SIZES


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_objects_of_all_sizes_arrive(world_size):
    assert run_ranks(object_ranks.move_all, world_size) == [[]] * world_size


def test_groups_without_headers_use_arrays():
    assert run_ranks(object_ranks.move_by_arrays, 2) == [[], []]


def test_the_debug_wrapper_lets_objects_through():
    env = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    assert run_ranks(object_ranks.move_all, 2, env=env) == [[], []]


# What pickle says of a function within a function.
LOCAL = "PicklingError" if sys.version_info >= (3, 14) else "AttributeError"
NO_LIST = "must be a list, as in [object], but is of type"
BAD = "rank 1: object 1, of type dict, cannot be pickled: "


def test_failures_are_told_on_every_rank():
    ranks = run_ranks(object_ranks.failures, 2)
    backend, value = "DistBackendError", "ValueError"
    expected = {
        "broadcast": ([backend, LOCAL], BAD),
        "broadcast safe": (
            [backend, "TypeError"],
            "rank 1: [1]['x'][0] is of type builtins.builtin_function_or_method, which "
            "safe mode does not support",
        ),
        "all_gather": (
            [backend, LOCAL],
            "rank 1: an object of type list cannot be pickled: ",
        ),
        "gather": ([backend, LOCAL], "gather_object in group 0: rank 1: an"),
        "scatter": ([backend, LOCAL], "rank 1: an object of type list cann"),
        "modes": (
            [backend] * 2,
            "all_gather_object in group 0: ranks do not agree on safe mode: it is on "
            "at rank 1, and off at rank 0",
        ),
        "gather list": ([value] * 2, "Argument ``gather_list`` must"),
        "scatter list": (
            [value, backend],
            "source rank must provide non-None scatter_object_input_list",
        ),
        "scatter count": ([value, backend], "the input list has 3 objects for 2 ranks"),
        "scatter output": (["", value], ""),
        "no list": (["", "TypeError"], ""),
        "no list at the source": (
            ["TypeError", backend],
            f"rank 0: `object_list` {NO_LIST} NoneType",
        ),
        "a dict to fill": (["", "TypeError"], ""),
        "a dict at the source": (
            ["TypeError", backend],
            f"rank 0: `object_list` {NO_LIST} dict",
        ),
        "a tuple to fill": (["", "TypeError"], ""),
        "a tuple at the source": (["", ""], ""),
        "a tuple of all": (["", "TypeError"], ""),
        "a tuple to gather": (["TypeError", ""], ""),
        "no list to scatter": (
            ["TypeError", backend],
            f"`scatter_object_input_list` {NO_LIST} generator",
        ),
        "no list to gather": (["TypeError", ""], ""),
        "an array as list": (["", ""], ""),
        "no list of all": (["", "TypeError"], ""),
        "speechless": (
            [backend, "PicklingError"],
            "an object of type object_ranks.Speechless cannot be pickled: Speechless",
        ),
        "short": (["", "IndexError"], ""),
        "load": (["", backend], ""),
        "load all": ([backend] * 2, "cannot be loaded on rank"),
        "root": ([value] * 2, "rank 9 is not in it, of 2"),
        "other": ([backend] * 2, "gather_object(to rank 0)"),
    }
    assert expected.keys() == ranks[0].keys()
    for case, (kinds, text) in expected.items():
        assert [got[case][0] for got in ranks] == kinds, (case, ranks)
        for got in ranks:
            assert text in got[case][1], (case, ranks)
            assert got[case][2] < SOON
    for kind in ("dict", "tuple"):
        problem = f"`object_list` {NO_LIST} {kind}"
        assert problem in ranks[1][f"a {kind} to fill"][1]
    for name, kind in (("a tuple", "tuple"), ("no list", "bool")):
        problem = f"rank 0: `object_gather_list` {NO_LIST} {kind}"
        assert problem in ranks[0][f"{name} to gather"][1]
    assert "list of size at least 1." in ranks[1]["scatter output"][1]
    assert (
        "the object from rank 0 cannot be loaded on rank 1: LookupError: not here"
        in (ranks[1]["load"][1])
    )
    assert "all_gather_object()" in ranks[0]["other"][1]


LENGTHS = "ranks' lists have different lengths: rank 0 1, rank 2 2"
MODES = "ranks do not agree on safe mode: it is on at rank 2, and off at rank 0"


@pytest.mark.parametrize("places", [["here"] * 3, ["left", "left", "right"]])
@pytest.mark.parametrize(
    ("case", "text"),
    [
        ("lengths", LENGTHS),
        ("broadcast", MODES),
        ("scatter", MODES),
        ("gather", MODES + ", 1"),
    ],
)
def test_calls_that_differ_are_told_on_every_rank(case, text, places):
    for got in run_ranks(object_ranks.mismatches, 3, case=case, places=places):
        kind, told = next(each for each in got if each[0])
        assert (kind, text in told) == ("DistBackendError", True), got


@pytest.mark.parametrize("places", [["here"] * 3, ["left", "right", "middle"]])
def test_ranks_go_on_without_those_that_have_nothing_for_them(places):
    found = run_ranks(object_ranks.going_on, 3, places=places)
    assert [each[:2] for each in found] == [(["settings"], [[i]]) for i in range(3)]
    assert found[0][2] == [{"rank": i} for i in range(3)]


@pytest.mark.parametrize("places", [["here"] * 3, ["left", "right", "right"]])
def test_a_gather_that_ends_half_way_leaves_nothing_for_the_next(places):
    # Rank 2 may have sent all before the root gave up.
    root, late, _ = run_ranks(object_ranks.late_rest, 3, places=places)
    assert "timed out after 300ms" in root[0] and "rank 1" in root[0]
    assert root[1] and late[1]


@pytest.mark.parametrize("places", [["here"] * 3, ["left", "left", "right"]])
def test_a_failure_takes_none_of_the_others_with_it(places):
    sizes = run_ranks(object_ranks.failing_beside_large, 3, places=places)
    assert [kinds for kinds, _ in sizes] == [
        ["DistBackendError", "", ""],
        [LOCAL, "TypeError", "ValueError"],
        ["", "", ""],
    ]
    assert all(after == [0, 1, 2] for _, after in sizes)


@pytest.mark.parametrize("places", [["here"] * 3, ["left", "left", "right"]])
def test_lists_that_cross_are_delivered(places):
    ranks = run_ranks(object_ranks.crossing, 3, places=places)
    for rank, got in enumerate(ranks):
        others = [peer for peer in range(3) if peer != rank]
        small = [[peer, "first", i] for peer in others for i in range(2)]
        large = [each for peer in others for each in (peer, peer * LARGE)]
        expected = small if places[0] == "here" else []
        assert got == [*expected, *large, (rank - 1) % 3]


def test_failures_of_messages():
    sender, receiver = run_ranks(object_ranks.message_failures, 2)
    backend = "DistBackendError"
    assert (sender["unpicklable"][0], receiver["unpicklable"][0]) == (
        LOCAL,
        backend,
    )
    assert sender["no list to send"][0] == "TypeError"
    assert "rank 0: `object_list` must be a list" in receiver["no list to send"][1]
    # A receiver that refuses a list takes all of it; the sender is not told.
    assert sender["lengths"][0] == sender["modes"][0] == sender["load"][0] == ""
    assert receiver["lengths"][0] == receiver["modes"][0] == backend
    assert "different lengths: rank 0 3, rank 1 1" in receiver["lengths"][1]
    assert "it is on at rank 1, and off at rank 0" in receiver["modes"][1]
    assert "LookupError: not here" in receiver["load"][1]
    assert receiver["no list"][0] == receiver["a string"][0] == "TypeError"
    assert f"rank 1: `object_list` {NO_LIST} str" in receiver["a string"][1]
    for got in (sender, receiver):
        assert "rank 0: object 1, of type function, cannot" in got["unpicklable"][1]
        assert "rank should not be the same as the rank of the cu" in got["self"][1]
        assert "Invalid source rank" in got["self recv"][1]
        assert got["nobody"][:2] == got["anybody"][:2]
        assert got["nobody"][:2] == (
            "ValueError",
            "Must specify global_rank or group_rank",
        )
        assert got["both"][1] == "Can't specify both group_rank and global_rank"
        assert all(seconds < SOON for _, _, seconds in got.values())


def test_groups():
    outside, last, first = run_ranks(object_ranks.in_groups, 3)
    names = [
        "all_gather_object",
        *["broadcast_object_list"] * 3,
        "gather_object",
        "recv_object_list",
    ]
    assert outside == [
        [None, None],
        [0, 0, 0],
        None,
        -1,
        [
            f"Running {name} on global rank 0 which does not belong to the given group."
            for name in names
        ],
    ]
    assert last == [[2, 1], [1, 1, 2], None, None, []]
    assert first == [[2, 1], [1, 1, 2], [2, 1], 1, []]


@pytest.mark.parametrize("default", ["pickle", "safe"])
def test_safe_mode_of_process_group_and_call(default):
    env = {"DISTLITE_OBJECTS": default}
    for got in run_ranks(object_ranks.safe_settings, 2, env=env):
        refused = ["which safe mode does not support" in text for text in got]
        by_default = default == "safe"
        forbidden = [
            "DISTLITE_OBJECTS=safe allows no pickle, which this call" in text
            for text in got
        ]
        assert refused == [
            *[by_default] * 2,
            *[False, True],
            *[False, False],
            *[True, True],
            *[by_default] * 2,
        ]
        assert forbidden == [
            *[False] * 2,
            *[by_default, False],
            *[by_default, by_default],
            *[False] * 4,
        ]
        assert all(
            bool(text) == any(no)
            for text, *no in zip(got, refused, forbidden, strict=True)
        )


NONE = ("", "")
TWO_HOSTS = ["left", "left", "right"]
WARNING = "nothing proves that the ranks on other hosts are of this job"


def test_pickles_between_hosts_without_a_token_are_warned_of_once():
    ranks = run_ranks(object_ranks.trusting, 3, places=TWO_HOSTS, settings=[""] * 3)
    assert all(failure == NONE for failures, _ in ranks for failure in failures)
    logs = [log for _, log in ranks]
    assert logs[0].count(WARNING) == 1 and "DISTLITE_TOKEN" in logs[0]
    assert WARNING not in logs[1]
    # It is sent a message.
    assert logs[2].count("nothing proves that rank 0 on another host is") == 1


@pytest.mark.parametrize("setting", ["pickle", "safe"])
def test_who_has_chosen_is_not_warned(setting):
    for failures, log in run_ranks(
        object_ranks.trusting, 3, places=TWO_HOSTS, settings=[setting] * 3
    ):
        assert all(failure == NONE for failure in failures)
        assert "nothing proves" not in log


def test_ranks_of_one_host_and_user_are_proved():
    for setting in ("", "proved"):
        for failures, log in run_ranks(
            object_ranks.trusting, 3, places=["here"] * 3, settings=[setting] * 3
        ):
            assert all(failure == NONE for failure in failures)
            assert "nothing proves" not in log


def test_pickles_of_ranks_that_nothing_proves_are_refused_on_demand():
    text = "DISTLITE_OBJECTS=proved refuses pickles: nothing proves that "
    first, second, third = run_ranks(
        object_ranks.trusting, 3, places=TWO_HOSTS, settings=["proved"] * 3
    )
    for failures, log in (first, second, third):
        assert "nothing proves" not in log
        collectives = [each for i, each in enumerate(failures) if i % 5 < 4]
        assert all(
            kind == "DistBackendError" and text in told for kind, told in collectives
        )
    # Rank 1 takes no part in the messages.
    assert second[0][4] == NONE
    assert text + "rank 2 on another host is" in first[0][4][1]
    assert "rank 0: " + text in third[0][4][1]


def test_the_token_proves_ranks_of_other_hosts():
    for setting in ("", "proved"):
        for failures, log in run_ranks(
            object_ranks.trusting,
            3,
            env={"DISTLITE_TOKEN": "of the tests, and no secret"},
            places=TWO_HOSTS,
            settings=[setting] * 3,
        ):
            assert all(failure == NONE for failure in failures)
            assert "nothing proves" not in log


def test_settings_that_differ_are_told():
    settings = ["proved", "pickle", "proved"]
    for failures, _ in run_ranks(
        object_ranks.trusting, 3, places=TWO_HOSTS, settings=settings
    ):
        kind, told = failures[0]
        assert kind == "DistBackendError"
        assert told.endswith(
            ": ranks do not agree on DISTLITE_OBJECTS: it is proved at rank 0, 2, and "
            "not at rank 1"
        )


def test_a_setting_that_does_not_exist_is_told_at_the_beginning():
    first, second = run_ranks(object_ranks.settings_at_once, 2)
    text = (
        "environment variable DISTLITE_OBJECTS: 'prooved' is not one of its values: "
        "pickle, proved, safe"
    )
    assert second == ("ValueError", text)
    assert first[0] == "DistBackendError"
    assert f"could not join: ValueError: {text}" in first[1]


def test_a_receiver_without_memory_keeps_nobody_waiting():
    sender, receiver = run_ranks(object_ranks.out_of_memory, 2)
    assert receiver[0] == "MemoryError"
    assert sender[0] == "DistBackendError" and "rank 1" in sender[1]
    assert sender[2] < SOON and receiver[2] < SOON


@pytest.mark.parametrize("op", ["broadcast", "send"])
def test_an_interrupt_between_header_and_rest_keeps_nobody_waiting(op):
    sender, receiver = run_ranks(object_ranks.interrupted_before_rest, 2, op=op)
    assert sender[0] == "KeyboardInterrupt"
    assert receiver[0] == "DistBackendError" and "rank 0" in receiver[1]
    assert sender[2] < SOON and receiver[2] < SOON


@pytest.mark.parametrize("interrupted", [0, 1])
def test_no_message_follows_one_that_was_cut_in_two(interrupted):
    ranks = run_ranks(object_ranks.interrupted_message, 2, interrupted=interrupted)
    first, second = zip(*ranks, strict=True)
    assert first[interrupted][0] == "KeyboardInterrupt"
    for said in second:
        assert said[0] == "DistBackendError" and "was aborted" in said[1], ranks


@pytest.mark.slow
def test_more_than_two_gigabytes():
    import os

    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if free < 14 << 30:
        pytest.skip(f"{free >> 30} GiB of memory are free; it takes 14")
    size = (1 << 31) + 5
    assert (
        run_ranks(object_ranks.huge, 2, timeout=540)
        == [[size, 1, 1, size, 1, 1, size, 97]] * 2
    )
