# SPDX-License-Identifier: BSD-3-Clause
"""torch's flight recorder analysis of a job whose ranks get out of step."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from flight_ranks import get_out_of_step
from workers import run_ranks

from distlite.tools.flight_recorder import write_dumps
from distlite.tools.recording import parse

pytest.importorskip("torch", reason="torch, whose analysis is run, is not installed")

ANALYSIS = "torch.distributed.flight_recorder.fr_trace"


@pytest.mark.limit(120)
def test_torch_finds_the_rank_that_is_out_of_step(tmp_path: Path):
    recordings = [parse(data) for data in run_ranks(get_out_of_step, 3)]
    write_dumps(recordings, str(tmp_path / "fr-"))
    found = subprocess.run(
        [sys.executable, "-m", ANALYSIS, str(tmp_path), "-p", "fr-"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    said = found.stdout + found.stderr
    assert found.returncode == 0, said
    # Two all_reduces, an exchange of objects, an exscan and a barrier agree.
    assert "Collective sequence number: 6 has errors" in said
    assert said.count("has errors") == 1
    assert "collective: gloo:broadcast" in said
    assert "Culprit rank 2; Error type: COLLECTIVE_TYPE_MISMATCH" in said
    assert "get_out_of_step at" in said and "flight_ranks.py:" in said
