# SPDX-License-Identifier: BSD-3-Clause
"""The fuzzing of safe mode's codec for seconds, as of the C targets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("safe_codec.py")


@pytest.mark.parametrize(
    "seconds", [2, pytest.param(20, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_bytes_are_decoded_or_malformed(seconds, tmp_path):
    # In a process of its own, whose end by a signal says what it was at.
    command = [sys.executable, str(PROGRAM), f"--seconds={seconds}", "--seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
