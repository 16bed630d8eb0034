# SPDX-License-Identifier: BSD-3-Clause
"""What the table of docs/differences.md says of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from difference_cases import CASES, outcome, rows

torch = pytest.importorskip("torch", reason="torch, to compare with, is not installed")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def _group():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def tensor(values, dtype):
    return torch.tensor(values, dtype=getattr(torch, dtype))


@pytest.mark.parametrize("row", CASES)
@pytest.mark.usefixtures("_group")
def test_a_row(row: str, tmp_path: Path):
    assert outcome(row, torch.distributed, tensor, tmp_path) == rows()[row][0]
