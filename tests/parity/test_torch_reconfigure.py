# SPDX-License-Identifier: BSD-3-Clause
"""Groups of torch that are reconfigured, over the backend distlite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

import torch_reconfigure_ranks as program

pytestmark = pytest.mark.limit(120)


def test_everything_that_torch_tests(tmp_path: Path):
    command = [sys.executable, program.__file__, str(tmp_path / "store")]
    ranks = [
        subprocess.Popen(
            [*command, str(rank), "3"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        said = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [text.strip() for text in said] == ["good", "good", ""], "\n".join(said)
    assert [rank.returncode for rank in ranks] == [0, 0, -9]


def test_a_group_that_was_made_without_it_cannot():
    store = program.dist.HashStore()
    group = program.distlite.torch.ProcessGroupDistlite(store, 0, 1, program.LIMIT)
    assert not group.supports_reconfigure
    for call in (
        group.get_reconfigure_handle,
        lambda: group.reconfigure(SimpleNamespace(uuid=1, handles=[], timeout=None)),
    ):
        with pytest.raises(RuntimeError, match="cannot be reconfigured: it was made"):
            call()
    group.shutdown()
