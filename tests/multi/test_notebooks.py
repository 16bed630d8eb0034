# SPDX-License-Identifier: BSD-3-Clause
"""The notebooks among the examples: each is run, and prints what it shows.

Those of the short examples are made from the scripts by examples/notebooks/make.py.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytest.importorskip("jupytext", reason="jupytext is not installed")

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
NOTEBOOKS = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
NEEDS = {"ddp": ["torch", "matplotlib"], "digits": ["sklearn", "matplotlib"]}
NEEDS["survivors"] = NEEDS["digits"]
# Processes of these take turns as they like, so that numbers differ.
UNORDERED = {"evolution", "parameter_server", "survivors"}

SPEC = importlib.util.spec_from_file_location("make_notebooks", FOLDER / "make.py")
make = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(make)

pytestmark = pytest.mark.slow


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def outputs_of(name: str, cell: Any) -> list[str]:
    """The lines that it has printed, and the kinds of other outputs.  Ranks may take
    turns in any order."""
    texts = [each.text for each in cell.outputs if each.get("name") == "stdout"]
    lines = "".join(texts).splitlines()
    if name in UNORDERED:
        lines = [re.sub(r"[\d.]+", "N", line) for line in lines if "died" not in line]
    kinds = [sorted(each.data) for each in cell.outputs if "data" in each]
    return sorted(lines) + sorted(map(str, kinds))


def test_each_short_example_has_one():
    assert set(NOTEBOOKS) == {*make.RANKS, "ranks"}


@pytest.mark.parametrize("name", make.RANKS)
def test_a_notebook_is_that_of_its_script(name: str):
    """`make notebooks` makes them anew."""
    shown, made = read(name), make.notebook_of(name)
    assert [(cell.cell_type, cell.source) for cell in shown.cells] == [
        (cell.cell_type, cell.source) for cell in made.cells
    ]


@pytest.mark.limit(200)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in NEEDS.get(name, [] if name == "ranks" else ["matplotlib"]):
        pytest.importorskip(module, reason=f"{module} is not installed")
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    shown, notebook = read(name), read(name)
    make.run(notebook, tmp_path)
    assert any(cell.get("outputs") for cell in shown.cells)
    for before, after in zip(shown.cells, notebook.cells, strict=True):
        if before.cell_type == "code":
            assert outputs_of(name, after) == outputs_of(name, before), before.source
