# SPDX-License-Identifier: BSD-3-Clause
"""The notebooks among the examples: each is run, and prints what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("**/*.ipynb"))

pytestmark = pytest.mark.slow


def lines_of(cell: Any) -> list[str]:
    """What it has printed; ranks may take turns in any order."""
    texts = [each.text for each in cell.outputs if each.get("name") == "stdout"]
    return sorted("".join(texts).splitlines())


def run(notebook: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(folder / name))
    client = nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=100,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) == 2


@pytest.mark.limit(200)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.stem == "digits":
        pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    shown, notebook = (nbformat.read(path, as_version=4) for _ in range(2))
    run(notebook, tmp_path, monkeypatch)
    assert any(cell.get("outputs") for cell in shown.cells)
    for before, after in zip(shown.cells, notebook.cells, strict=True):
        if before.cell_type == "code":
            assert lines_of(after) == lines_of(before), before.source
