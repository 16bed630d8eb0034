# SPDX-License-Identifier: BSD-3-Clause
"""Makes the notebooks of the short examples from their scripts, and runs them:
`make.py [NAME...]`, `make notebooks`.

jupytext reads the cells of a script.  The last one, which reads the command line, is
replaced by one that starts the ranks, and one that shows the picture.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

FOLDER = Path(__file__).parent
# How many ranks each has; none: it starts its processes itself.
RANKS = {
    "ddp": 2,
    "digits": 4,
    "evolution": None,
    "heat": 4,
    "kmeans": 4,
    "parameter_server": 4,
    "sort": 4,
    "survivors": None,
}


def notebook_of(name: str) -> Any:
    """Returns the notebook of a script, not run."""
    notebook: Any = jupytext.read(FOLDER.parent / f"{name}.py")
    picture = f"{name}.png"
    start = f'main("{picture}")'
    if RANKS[name]:
        launcher = f'main, args=("{picture}",), num_processes={RANKS[name]}'
        start = f"import distlite\n\ndistlite.notebook_launcher({launcher})"
    show = f'from IPython.display import Image\n\nImage("{picture}")'
    # The first one is the licence's line.
    new_cell: Any = nbformat.v4.new_code_cell
    cells = [*notebook.cells[1:-1], new_cell(start), new_cell(show)]
    code = "".join(cell.source for cell in cells)
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
        cell.metadata.clear()
        # Only the command line needs these.
        cell.source = re.sub(r"import argparse\n\n?", "", cell.source)
        if "find_spec(" not in code:
            line = r"from importlib\.util .*\n"
            cell.source = re.sub(rf"(?<=\n\n){line}\n|{line}", "", cell.source)
    notebook.cells = cells
    notebook.metadata.clear()
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return notebook


def run(notebook: Any, folder: str | Path) -> None:
    """Runs all cells in the folder; raises CellExecutionError."""
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=100, resources=resources
    ).execute()


def main(names: list[str]) -> None:
    for name in names or RANKS:
        notebook = notebook_of(name)
        with tempfile.TemporaryDirectory() as folder:
            run(notebook, folder)
        for cell in notebook.cells:
            cell.metadata.clear()  # without the times at which it ran
            if cell.cell_type == "code":  # and the tables of ranks that saw a death
                shown = [o for o in cell.outputs if o.get("name") != "stderr"]
                cell.outputs = shown
        write: Any = nbformat.write
        write(notebook, FOLDER / f"{name}.ipynb")
        print(os.path.relpath(FOLDER / f"{name}.ipynb"))


if __name__ == "__main__":
    main(sys.argv[1:])
