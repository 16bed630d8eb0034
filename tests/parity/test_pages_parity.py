# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the manual that show other packages: their commands run here."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pages import DOCS, run_page


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("stores", "torch"),
        ("from-torch", "torch"),
        ("faster-torch", "torch"),
        ("from-mpi4py", "mpi4py"),
        ("tutorials/arrays", "jax"),
    ],
)
def test_a_page_with_another_package(tmp_path: Path, name: str, package: str):
    pytest.importorskip(package, reason=f"{package} is not installed")
    if package == "mpi4py" and shutil.which("mpirun") is None:
        pytest.skip("mpirun is not installed")
    assert run_page(DOCS / f"{name}.md", tmp_path) == []


@pytest.mark.slow
def test_the_page_of_other_frameworks(tmp_path: Path):
    """Each of its programs whose package installs here; the rest are named."""
    if left_out := run_page(DOCS / "other-frameworks.md", tmp_path):
        pytest.skip("; ".join(left_out))
