# SPDX-License-Identifier: BSD-3-Clause
"""The text of a timeout says where the late ranks are, on every rank that waits."""

from __future__ import annotations

import re

import late_ranks
import pytest
from workers import run_ranks

BUSY = (
    r"; rank {} \(pid \d+ on host \S+\) is in recv\(4 x float64\) from rank 0 "
    r"with tag 7 in group 0, called at late_ranks.py:\d+ in miss \d+\.\d s ago"
)
IDLE = (
    r"; rank {} \(pid \d+ on host \S+\) is in no operation since barrier\(\) #1 in "
    r"group \w+, called at late_ranks.py:\d+ in miss, which ended \d+\.\d s ago"
)


@pytest.mark.parametrize(
    ("size", "hosts", "late", "is_busy"),
    [
        (3, "", [1], False),
        (3, "", [2], True),
        (4, "AABB", [3], False),
        (4, "AABB", [1], True),
    ],
)
def test_each_rank_says_what_the_late_ones_do(tmp_path, size, hosts, late, is_busy):
    texts = run_ranks(
        late_ranks.miss,
        size,
        path=str(tmp_path / "store"),
        hints=hosts,
        late=late,
        is_busy=is_busy,
    )
    for rank, text in enumerate(texts):
        for each in late if rank not in late else []:
            pattern = (BUSY if is_busy else IDLE).format(each)
            assert len(re.findall(pattern, text)) == 1, text
            assert " timed out after 1500ms: waiting for rank " in text


def test_of_many_late_ranks_the_first_are_told(tmp_path):
    late = [1, 2, 3, 4, 5]
    texts = run_ranks(
        late_ranks.miss,
        6,
        path=str(tmp_path / "store"),
        hints="",
        late=late,
        is_busy=False,
    )
    told = [each for each in late if re.search(IDLE.format(each), texts[0])]
    assert told == [1, 2, 3]
    assert "; and 2 more; a longer timeout" in texts[0]


def test_messages_that_time_out_at_once_share_one_look(tmp_path):
    texts = run_ranks(
        late_ranks.miss_messages, 4, path=str(tmp_path / "store"), hints=""
    )[0]
    seconds = float(texts.pop())
    assert len(texts) == 400
    told = {re.search(r"; rank 1 \(pid .* s ago", each)[0] for each in texts}
    assert len(told) <= 1 + seconds
    assert seconds < 5
