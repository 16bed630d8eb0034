# SPDX-License-Identifier: BSD-3-Clause
"""Deadlines are kept, and name who is late, whoever knows that."""

from __future__ import annotations

import re

import pytest
from deadline_ranks import miss
from workers import run_ranks


@pytest.mark.parametrize(
    ("hosts", "late"),
    [("AAAA", 1), ("AABB", 0), ("AABB", 1), ("AABB", 3), ("ABCD", 2)],
)
def test_every_rank_names_the_late_one(hosts, late):
    texts = run_ranks(miss, 4, places=hosts, late=late)
    assert texts.pop(late) is None
    for text in texts:
        assert " timed out after 2000ms: " in text and f"rank {late} (pid " in text
        # What programs written for gloo look for.
        assert re.search(" (Timed out|closed|timeout) ", text)


@pytest.mark.parametrize(
    ("hosts", "late", "reader"),
    [
        ("AAAA", 1, 2),
        ("AABB", 0, 1),
        ("AABB", 1, 0),
        ("AABB", 1, 2),
        ("AABB", 1, 3),
        ("AABB", 3, 0),
        ("ABCD", 2, 0),
    ],
)
def test_a_rank_that_nobody_answers_keeps_its_deadline(tmp_path, hosts, late, reader):
    """A rank that asked others after its deadline would wait for as long as they are
    stopped, which is until it has raised."""
    texts = run_ranks(
        miss, 4, places=hosts, late=late, reader=reader, folder=str(tmp_path)
    )
    assert " timed out after 2000ms: " in texts[reader]
    assert f"; rank {late} (pid " in texts[reader]
    assert " is in no operation since all_gather(" in texts[reader]
