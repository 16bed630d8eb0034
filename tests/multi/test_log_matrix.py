# SPDX-License-Identifier: BSD-3-Clause
"""The lines of the log at each level: the table of docs/debugging.md."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ports import reserve_port

RANKS = Path(__file__).with_name("log_ranks.py")
PAGE = Path(__file__).parents[2] / "docs/debugging.md"
LEVELS = ("OFF", "INFO", "DETAIL")
# The last column of the table.
SHOWN = {
    "any": LEVELS,
    "from `INFO`": ("INFO", "DETAIL"),
    "`INFO` only": ("INFO",),
    "`DETAIL`": ("DETAIL",),
}


def rows() -> list[tuple[str, str]]:
    """The beginning of each line, and when it is shown."""
    table = PAGE.read_text().split("has its line here:\n\n")[1].split("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(here.strip("`"), when) for *_, here, when in cells]


def said_by_both(level: str, debug: str) -> str:
    """What the two ranks wrote to standard error; rank 1 is started first."""
    environment = os.environ | {
        "TORCH_CPP_LOG_LEVEL": level,
        "TORCH_DISTRIBUTED_DEBUG": debug,
    }
    port = str(reserve_port())
    ranks = [
        subprocess.Popen(
            [sys.executable, str(RANKS), str(rank), port],
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (1, 0)
    ]
    try:
        said = [rank.communicate(timeout=100)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0, 0], said
    return "".join(said)


@pytest.mark.parametrize("debug", LEVELS)
def test_the_table_says_what_is_shown(debug):
    said = said_by_both("INFO", debug)
    for line, when in rows():
        is_shown = re.search(rf"\] {re.escape(line.strip())}", said) is not None
        if "will retry" in line and not is_shown:
            continue  # rank 0 was the first after all
        assert is_shown is (debug in SHOWN[when]), f"{line!r} in\n{said}"


@pytest.mark.parametrize("level", ["WARNING", "ERROR"])
def test_other_levels_show_none_of_it(level):
    assert said_by_both(level, "DETAIL") == ""


def test_each_level_has_a_line():
    assert {when for _, when in rows()} == set(SHOWN)
