# SPDX-License-Identifier: BSD-3-Clause
"""Tables of `distlite ps` and its like are whole, however wide the terminal is."""

from __future__ import annotations

import io

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
