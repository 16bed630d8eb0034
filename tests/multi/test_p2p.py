# SPDX-License-Identifier: BSD-3-Clause
"""Messages between two ranks."""

import p2p_ranks
import pytest
from doubles_build import mpi_double
from workers import SOON, rank_outcomes, run_ranks


def test_tags_may_be_received_in_any_order():
    assert run_ranks(p2p_ranks.tags_out_of_order, 2)[1] == list(range(50))[::-1]


@pytest.mark.parametrize("world_size", [2, 4])
def test_a_receive_from_anybody_names_the_sender(world_size):
    got = run_ranks(p2p_ranks.any_source, world_size)[0]
    everyone = range(1, world_size)
    steps = range(20 * (world_size - 1))
    assert got == [
        (rank, [step for step in steps if step % (world_size - 1) == rank - 1])
        for rank in everyone
    ]


def test_what_does_not_fit_fails_alone():
    sender, receiver = run_ranks(p2p_ranks.misfit, 2)
    small, large, other = receiver[:3]
    # A small send has ended before.
    assert [kind for kind, *_ in sender[:3]] == ["", "DistBackendError", ""]
    for told, end, size in (
        (small, "recv from rank 0", 160),
        (large, "recv from rank 0", 5600008),
        (sender[1], "send to rank 1 (pid ", 5600008),
    ):
        kind, text, seconds = told
        assert (kind, seconds < SOON) == ("DistBackendError", True)
        assert end in text and f"of {size} bytes does not fit" in text
        assert "the 80 bytes" in text
    kind, text, _ = other
    assert kind == "DistBackendError" and "float32" in text and "float64" in text
    assert receiver[3] == [7.0, 7.0, 0.0]


def test_wrong_calls():
    for rank, results in enumerate(run_ranks(p2p_ranks.wrong_calls, 2)):
        texts = {
            "self": "Invalid destination rank: destination rank should not be the "
            "same as the rank of the current process.",
            "self recv": "Invalid source rank: source rank should not be the same as "
            "the rank of the current process.",
            "range": "Global rank 9 is not part of group",
            "negative": "rank -1 is not in group",
            "wide": f"{2**32 + 1 - rank} is not a rank",
            "wide send": f"Global rank {2**32 + 1 - rank} is not part of group",
            "tag": "send: tag -1 is negative",
            "recv tag": "recv: tag -1 is negative",
            "isend tag": "send: tag -1099511627776 is negative",
            "any tag": "recv: tag -1 is negative",
            "none": "Must specify global_rank or group_rank",
            "both": "Can't specify both group_rank and global_rank",
            "frozen": "read-only",
            "op": "Invalid ``op``.",
            "op peer": "Must specify global_rank or group_rank",
            "batch": "Invalid ``p2p_op_list``.",
        }
        for case, text in texts.items():
            kind, got, seconds = results[case]
            assert (kind, text in got) == ("ValueError", True), (case, kind, got)
            assert seconds < SOON
        assert results["array"][0] == results["op array"][0] == "TypeError"
        assert results["empty"][0] == "IndexError"
        assert results["outside"][0] == ""
        assert results["repr"] == (
            f"P2POp(isend pg=0, group_src={rank}, group_dst={1 - rank},  (1,), float64)"
        )


@pytest.mark.parametrize("world_size", [2, 3])
def test_batch(world_size):
    for rank, got in enumerate(run_ranks(p2p_ranks.batch, world_size)):
        before = (rank - 1) % world_size
        assert got == [before, before + 100]


@pytest.mark.parametrize(
    "how", ["recv", "any", "send", "irecv", "sendrecv", "small sendrecv"]
)
def test_the_death_of_a_peer_is_told(how):
    outcomes = rank_outcomes(p2p_ranks.dead_peer, 3, how=how)
    assert outcomes[1].returncode == -9
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome.is_good, outcome.describe()
        pid, first, again, other = outcome.value
        for kind, text, seconds in (first, again):
            assert kind == "DistBackendError"
            assert f"rank 1 (pid {pid} " in text
            assert seconds < SOON
        assert other == 2 - outcome.rank


def test_a_death_in_the_middle_of_both_ways_is_told():
    survivor, killed = rank_outcomes(p2p_ranks.killed_in_the_middle, 2)
    assert killed.returncode == -9 and survivor.is_good, survivor.describe()
    pid, (kind, text, seconds) = survivor.value
    assert (kind, seconds < SOON) == ("DistBackendError", True)
    assert f"rank 1 (pid {pid} " in text and "exited or was killed" in text


def test_a_timeout_names_the_peer_and_breaks_nothing():
    results = run_ranks(p2p_ranks.late, 2)[0]
    for (kind, text, _), name in zip(
        results, ("send to", "recv from", "recv from", "recv from"), strict=True
    ):
        assert kind == "DistBackendError"
        assert f"{name} rank 1 (pid " in text
        assert "with tag 4 in group 0 timed out after 300ms" in text
    assert all(seconds < SOON for _, _, seconds in results)


@pytest.mark.parametrize("both_ways", [False, True])
def test_an_interrupt_ends_a_receive(both_ways):
    args = {"times": 3, "both_ways": both_ways}
    kinds, delays = run_ranks(p2p_ranks.interrupted, 2, **args)[0]
    assert kinds == ["KeyboardInterrupt"] * 3
    # 100 ms are promised, and a busy machine may be slower more than once.
    assert min(delays) < 0.1 and max(delays) < SOON


@pytest.mark.parametrize("places", ["000", "001", "012", "mpi"])
def test_both_ways_in_one_call(places):
    env = mpi_double() if places == "mpi" else {}
    every = run_ranks(p2p_ranks.both_ways, 3, env=env, places=places)
    for rank, found in enumerate(every):
        assert found["ring"] == [True] * 5
        assert found["any"] and found["after"]
        assert found["pair"] == [1, 0, -1][rank]
        for what, kind, text in (
            ("overlap", "ValueError", "output and input share memory"),
            ("itself", "ValueError", "rank"),
            ("no dst", "ValueError", "dst"),
            ("list", "TypeError", "input"),
            ("fixed", "ValueError", "read-only"),
        ):
            assert found[what][0] == kind and text in found[what][1], found[what]
    assert every[0]["halves"] == [1]
    assert [found["values"] for found in every[:2]] == [[7, 8], [0, 1]]


@pytest.mark.parametrize("places", ["00", "01"])
def test_halves_that_do_not_fit_are_told(places):
    every = run_ranks(p2p_ranks.of_other_dtypes, 2, places=places)
    assert [got for _, got in every] == [2.0, 1.0]
    # The sender's message is on its way when it ends.
    told = every[0][0]
    assert "int32" in told and "float64" in told
