# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the manual that show programs: each is run, and prints what is shown.

What needs an MPI, torch or mpi4py is left out where that is not installed;
tests/parity/test_pages_parity.py insists on it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import pages, run_page

SLOW = {"fault-tolerance", "from-mpi4py", "launching"}


@pytest.mark.limit(300)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else []
        )
        for page in pages()
    ],
)
def test_a_page(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
