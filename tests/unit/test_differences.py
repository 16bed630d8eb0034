# SPDX-License-Identifier: BSD-3-Clause
"""What the table of docs/differences.md says of distlite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from difference_cases import CASES, outcome, rows

import distlite


@pytest.fixture
def _group() -> Iterator[None]:
    distlite.init_process_group(store=distlite.HashStore(), rank=0, world_size=1)
    yield
    distlite.destroy_process_group()


def test_each_row_has_a_program() -> None:
    assert list(rows()) == list(CASES)


@pytest.mark.parametrize("row", CASES)
@pytest.mark.usefixtures("_group")
def test_a_row(row: str, tmp_path: Path) -> None:
    assert outcome(row, distlite, np.array, tmp_path) == rows()[row][1]
