# SPDX-License-Identifier: BSD-3-Clause
"""Threads that use one object at the same time: with a GIL, and without, if there is a
Python without one.  `make nogil-tsan` does the same under ThreadSanitizer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRESS = Path(__file__).with_name("thread_stress.py")
FREE_THREADED = os.environ.get("FREE_THREADED", "python3.14t")


def call(*command: object) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.slow
def test_threads_share_objects() -> None:
    assert "all is well" in call(sys.executable, STRESS, "--seconds", 0.5)


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which(FREE_THREADED) is None, reason=f"there is no {FREE_THREADED}"
)
def test_threads_share_objects_without_a_gil() -> None:
    make = ["make", "--no-print-directory", "nogil", f"FREE_THREADED={FREE_THREADED}"]
    assert "all is well" in call(*make, "STRESS_SECONDS=0.5")
