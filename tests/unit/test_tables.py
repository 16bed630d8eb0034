# SPDX-License-Identifier: BSD-3-Clause
"""Tables of `distlite ps` and its like are whole, however wide the terminal is."""

from __future__ import annotations

import io
from types import SimpleNamespace

from distlite.tools.table import title_of
from distlite.tools.text import show

HEADERS = ("rank", "in", "called at")
OPERATION = "all_gather_into_tensor(1048576 x bfloat16 on device cuda:3) #12345"
SITE = "some_long_module_name.py:1234 in a_function_with_a_long_name"
ROW = ("0", OPERATION, SITE)
LINE = f"0     {OPERATION}  {SITE}"


def test_no_cell_is_cut():
    file = io.StringIO()
    show("job", HEADERS, [ROW], file)
    assert file.getvalue().splitlines()[2] == LINE


def test_a_rank_of_two_processes_counts_once():
    """The second one is a member of a later epoch."""
    recording = SimpleNamespace(host="here", command="work.py")
    members = [SimpleNamespace(rank=rank, recording=recording) for rank in (0, 1, 1)]
    job = SimpleNamespace(members=members, size=3, name="x", unseen=lambda: [2])
    title = "job x on here, 2 of 3 ranks; not here: 2: work.py"
    assert title_of(job) == title  # type: ignore[arg-type]
