# SPDX-License-Identifier: BSD-3-Clause
"""The fuzzing of whole servers, a round for each kind of server and each setting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("live_servers.py")


@pytest.mark.parametrize(
    "seconds", [0, pytest.param(30, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_servers_survive_and_serve_others(seconds):
    command = [sys.executable, str(PROGRAM), f"--seconds={seconds}", "--seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
