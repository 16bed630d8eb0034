# SPDX-License-Identifier: BSD-3-Clause
"""What is drawn with matplotlib, which is large: it is installed beside torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from launching import launch

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_loss_curve(tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    file = tmp_path / "loss.png"
    words = ["--nproc-per-node", 2, EXAMPLES / "train_digits.py", "--plot", file]
    result = launch(words, timeout=100)
    assert result.returncode == 0, result.stderr
    assert f"[rank0]: loss curve: {file}" in result.stdout.splitlines()
    assert file.read_bytes().startswith(PNG)
