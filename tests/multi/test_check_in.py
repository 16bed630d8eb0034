# SPDX-License-Identifier: BSD-3-Clause
"""Ranks that were started wrongly are told what is wrong, all of them, and soon."""

from __future__ import annotations

import check_in_ranks
import pytest
from ports import reserve_port
from workers import SOON, run_ranks


@pytest.fixture(params=["file", "tcp"])
def method(request):
    if request.param == "file":
        return {}
    return {"init_method": f"tcp://127.0.0.1:{reserve_port()}"}


@pytest.mark.parametrize("sizes", [(4, 4, 3), (3, 4, 4), (2, 4, 4), (4, 2, 4)])
def test_world_sizes_that_differ_are_named_on_every_rank(method, sizes):
    roles = list(enumerate(sizes))
    for text, seconds in run_ranks(check_in_ranks.start, 3, roles=roles, **method):
        assert "DistBackendError: rank " in text and "WORLD_SIZE" in text
        for rank, size in roles:
            named = f"rank {rank} (pid "
            assert named not in text or f"world_size {size}" in text
        assert text.count(" with world_size ") == 2
        assert seconds < SOON


def test_a_rank_that_is_started_twice_is_named_on_every_rank(method):
    roles = [(0, 3), (1, 3), (1, 3)]
    results = run_ranks(check_in_ranks.start, 3, roles=roles, **method)
    for text, seconds in results:
        assert "rank 1 was started twice, as pid " in text, text
        assert text.count(" on host ") == 2
        assert seconds < SOON


def test_a_second_one_that_comes_too_late_is_told_so():
    roles = [(0, 2), (1, 2), (1, 2)]
    delay = (0.0, 0.0, 1.0)
    results = run_ranks(
        check_in_ranks.start, 3, roles=roles, delay=delay, wait=3.0, stays=True
    )
    assert [text for text, _ in results[:2]] == ["joined", "joined"]
    text, _ = results[2]
    assert "waiting for rank 0, which has not come; pid " in text
    assert "which still runs, has joined as rank 1 before" in text


def test_a_rank_that_does_not_come_is_named():
    roles = [(0, 3), (2, 3)]
    for text, _ in run_ranks(check_in_ranks.start, 2, roles=roles, wait=0.4):
        assert "DistStoreError: joining group 0 as rank " in text
        assert "timed out after 400ms: waiting for rank 1, which has not come" in text
