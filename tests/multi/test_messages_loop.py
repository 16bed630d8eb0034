# SPDX-License-Identifier: BSD-3-Clause
"""The loop in C that the benchmark of messages has beside distlite."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "messages_peer.py"
# Beside a flag, in some parts, and past the caches.
CELLS = [["sendrecv", 8], ["there_and_back", 64 << 10], ["isend_recv", 8 << 20]]
LIMIT = 120


@pytest.mark.skipif(
    not shutil.which("gcc") or os.uname().machine != "x86_64",
    reason="the loop is for x86-64, and is compiled by gcc",
)
def test_the_loop_moves_messages_of_each_kind(tmp_path):
    """The ranks compare what they got."""
    plan = {"budget": 0.001, "cells": CELLS, "first": 0, "between": False}
    words = [str(tmp_path), json.dumps({**plan, "is_written": False})]
    ranks = [
        subprocess.Popen([sys.executable, PROGRAM, "loop", str(rank), "2", *words])
        for rank in range(2)
    ]
    try:
        assert [rank.wait(LIMIT) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    said = (tmp_path / "said").read_text().splitlines()
    assert [json.loads(line)[:2] for line in said] == CELLS
