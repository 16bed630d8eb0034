# SPDX-License-Identifier: BSD-3-Clause
"""The pages of the manual that show programs: each is run, and prints what is shown.

What needs an MPI, torch or mpi4py is left out where that is not installed;
tests/parity/test_pages_parity.py insists on it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import pages, run_page

SLOW = {
    "data-parallel",
    "fault-tolerance",
    "from-mpi4py",
    "launching",
    "other-frameworks",
    "parameter-server",
}
# A program that needs one of these leaves a file to all programs after it.
NEEDED = {"data-parallel": "sklearn"}


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
    if page.stem in NEEDED:
        pytest.importorskip(NEEDED[page.stem])
    run_page(page, tmp_path)


def page_of(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text)
    return page


def test_what_is_not_printed_is_found_out(tmp_path: Path) -> None:
    program = '```python\n# say.py\nprint("one")\n```\n'
    lie = page_of(tmp_path, program + "```console\n$ python say.py\ntwo\n```\n")
    with pytest.raises(AssertionError, match=r"misses: \['two'\]"):
        run_page(lie, tmp_path)


def test_what_cannot_be_run_is_told(tmp_path: Path) -> None:
    program = "```python\n# say.py\nimport no_such_package\n```\n"
    page = page_of(tmp_path, program + "```console\n$ python say.py\n```\n")
    assert run_page(page, tmp_path) == ["python say.py: there is no no_such_package"]
