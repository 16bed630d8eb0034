# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that wait for each other are told so, long before their timeout."""

from __future__ import annotations

import re

import deadlock_ranks
import pytest
from deadlock_ranks import MARK
from workers import rank_outcomes, run_ranks

SOON = {"DISTLITE_DEADLOCK_SECONDS": "0.2"}


def lines_of(text: str) -> list[str]:
    """Of the picture, without what differs between runs."""
    found = re.findall(
        r"rank (\d+) \(pid \d+ on host .*?\) waits for (.*?) in (\w+)\(.*?\)(.*?) in "
        r"group \w+, called at (\S+):\d+ in (\w+)",
        text,
    )
    return [" ".join(parts) for parts in found]


@pytest.mark.parametrize(
    ("kind", "size", "hosts", "expected"),
    [
        (
            "receive_in_a_collective",
            2,
            "",
            ["0 rank 1 all_reduce  #1", "1 rank 0 recv  with tag 0"],
        ),
        (
            "receive_in_a_collective",
            4,
            "AABB",
            ["0 rank 3 all_reduce  #1", "3 rank 0 recv  with tag 0"],
        ),
        ("cross_groups", 2, "", ["0 rank 1 all_reduce  #1", "1 rank 0 all_reduce  #1"]),
        (
            "cross_groups",
            3,
            "ABC",
            ["0 rank 2 all_reduce  #1", "2 rank 0 all_reduce  #1"],
        ),
        (
            "cross_asynchronous_groups",
            2,
            "",
            ["0 rank 1 all_reduce  #1", "1 rank 0 all_reduce  #1"],
        ),
        (
            "send_to_each_other",
            2,
            "",
            ["0 rank 1 send  with tag 0", "1 rank 0 send  with tag 0"],
        ),
        (
            "send_to_each_other",
            2,
            "AB",
            ["0 rank 1 send  with tag 0", "1 rank 0 send  with tag 0"],
        ),
        (
            "receive_in_a_ring",
            3,
            "AAB",
            [f"{rank} rank {(rank + 1) % 3} recv  with tag 0" for rank in range(3)],
        ),
        (
            "receive_past_a_leader",
            3,
            "ABA",
            ["1 rank 2 all_reduce  #1", "2 rank 1 recv  with tag 0"],
        ),
        (
            "receive_from_a_leader",
            3,
            "AAB",
            ["0 rank 2 all_reduce  #1", "2 rank 0 recv  with tag 0"],
        ),
        (
            "receive_from_a_follower",
            4,
            "AAAB",
            ["1 rank 3 all_reduce  #1", "3 rank 1 recv  with tag 0"],
        ),
        (
            "receive_past_all_leaders",
            4,
            "AABB",
            ["1 rank 3 all_reduce  #1", "3 rank 1 recv  with tag 0"],
        ),
        (
            "mistake_a_tag",
            2,
            "",
            ["0 rank 1 send  with tag 1", "1 rank 0 recv  with tag 2"],
        ),
    ],
)
def test_every_rank_in_it_is_told(tmp_path, kind, size, hosts, expected):
    path = str(tmp_path / "store")
    culprits = [int(line.split()[0]) for line in expected]
    texts = run_ranks(
        deadlock_ranks.hang,
        size,
        path=path,
        kind=kind,
        hints=hosts,
        culprits=culprits,
        env=SOON,
    )
    for rank in culprits:
        assert MARK in texts[rank], texts
        where = f"deadlock_ranks.py {kind}"
        assert lines_of(texts[rank]) == [f"{line} {where}" for line in expected], texts


def test_it_is_logged_once_and_in_the_text_of_the_timeout(tmp_path):
    outcomes = rank_outcomes(
        deadlock_ranks.hang_until,
        2,
        path=str(tmp_path / "store"),
        kind="receive_in_a_collective",
        env=SOON,
        limit=6.0,
    )
    for outcome in outcomes:
        assert MARK in outcome.output, outcome.describe()
        # Once: the table of a timeout follows, and no second picture.
        assert outcome.output.count(MARK) == 1, outcome.describe()
        assert MARK in outcome.value, outcome.describe()


def test_off_is_off(tmp_path):
    env = SOON | {"DISTLITE_DEADLOCK": "off"}
    outcomes = rank_outcomes(
        deadlock_ranks.hang_until,
        2,
        path=str(tmp_path / "store"),
        kind="receive_in_a_ring",
        env=env,
        limit=3.0,
    )
    assert not any(MARK in outcome.output for outcome in outcomes)


def test_a_setting_that_makes_no_sense_is_an_error(monkeypatch):
    import distlite

    monkeypatch.setenv("DISTLITE_DEADLOCK", "maybe")
    with pytest.raises(
        ValueError, match="DISTLITE_DEADLOCK=maybe: the value must be warn or"
    ):
        distlite.init_process_group("gloo", rank=0, world_size=1, store=None)
    monkeypatch.setenv("DISTLITE_DEADLOCK", "warn")
    monkeypatch.setenv("DISTLITE_DEADLOCK_SECONDS", "soon")
    with pytest.raises(ValueError, match="DISTLITE_DEADLOCK_SECONDS=soon"):
        distlite.init_process_group("gloo", rank=0, world_size=1, store=None)


@pytest.mark.parametrize(
    ("kind", "hosts"),
    [
        ("wait_for_a_slow_rank", ""),
        ("wait_for_a_slow_rank", "ABA"),
        ("need_the_root_alone", "AAB"),
        ("let_a_thread_resolve_it", ""),
        ("receive_what_is_on_its_way", ""),
        ("stop_a_rank", "AAB"),
    ],
)
def test_what_ends_well_shows_no_picture(tmp_path, kind, hosts):
    outcomes = rank_outcomes(
        deadlock_ranks.finish,
        3 if hosts else 2,
        path=str(tmp_path / "store"),
        kind=kind,
        hints=hosts,
        env=SOON,
    )
    for outcome in outcomes:
        assert outcome.is_good, outcome.describe()
        assert MARK not in outcome.output, outcome.describe()
