# SPDX-License-Identifier: BSD-3-Clause
"""probe and iprobe, over rings, links and MPI."""

import probe_ranks
import pytest
from doubles_build import mpi_double
from workers import rank_outcomes, run_ranks

PLACES = ["00", "01", "mpi"]


def environment(places):
    return mpi_double() if places == "mpi" else {}


@pytest.mark.parametrize("places", PLACES)
def test_messages_are_described_and_stay(places):
    found, _ = run_ranks(
        probe_ranks.messages, 2, env=environment(places), places=places
    )
    assert found["none"] is None
    assert found["object"] == ["object"]
    for tag, dtype, size, values in (
        (4, "float64", 24, [0, 1, 2]),
        (5, "int32", 800_000, [199_997, 199_998, 199_999]),
        (6, "datetime64[s]", 16, None),
        (7, "uint8", 0, []),
    ):
        text = f"Message(source=1, tag={tag}, dtype={dtype!r}, nbytes={size})"
        first, (kind, got) = found[f"tag {tag}"]
        assert tuple(first) == (text, True, 1, None)
        assert kind == dtype
        assert values is None or got == values


@pytest.mark.parametrize("places", ["000", "001", "012", "mpi"])
def test_any_source_and_any_tag(places):
    found = run_ranks(probe_ranks.any_tag, 3, env=environment(places), places=places)[0]
    assert [tuple(each) for each in found[:2]] == [(1, 10, [1]), (2, 20, [2, 2])]
    negative, itself, outside = found[2:]
    assert negative == "ValueError: probe: tag -1 is negative"
    assert itself.startswith("ValueError: Invalid source rank")
    assert outside.startswith("ValueError: ")


@pytest.mark.parametrize("places", PLACES)
def test_any_tag_finds_messages_in_their_order(places):
    """Also after probes for a later one, and before the collective that has begun."""
    tags = run_ranks(probe_ranks.in_order, 2, env=environment(places), places=places)[0]
    assert tags == [7, 5, 9, 5, None]


@pytest.mark.parametrize("places", PLACES)
def test_probes_and_receives_of_two_threads(places):
    """A probe takes no message away from the receives of another thread."""
    run_ranks(probe_ranks.two_threads, 2, env=environment(places), places=places)


@pytest.mark.parametrize("places", PLACES)
def test_a_receive_that_waits_comes_first(places):
    probed, first, second = run_ranks(
        probe_ranks.races, 2, env=environment(places), places=places
    )[0]
    assert probed == "Message(source=1, tag=1, dtype='float64', nbytes=8)"
    assert (first, second) == (7, 8)


@pytest.mark.parametrize("places", ["000", "001"])
def test_deadlines_and_dead_ranks_are_told(places):
    *others, dead = rank_outcomes(probe_ranks.late, 3, places=places)
    assert dead.returncode == -9, dead.describe()
    for outcome in others:
        assert outcome.is_good, outcome.describe()
        late, gone, anybody = outcome.value
        assert late.startswith("DistBackendError: probe of rank 2"), late
        assert "timed out after 200ms: no matching message was sent" in late
        assert "rank 2" in gone and gone.startswith("DistBackendError: "), gone
        assert "rank 2" in anybody and "any tag" in anybody, anybody
