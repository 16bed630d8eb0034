# SPDX-License-Identifier: BSD-3-Clause
"""The table of functions in docs/backends.md is what two ranks of each backend find.

python tests/multi/test_support_doc.py        writes it
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs" / "backends.md"
BEGIN = "<!-- what functions there are: tests/multi/test_support_doc.py writes it -->\n"
END = "<!-- end of the functions -->\n"

if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "tests" / name) for name in ("", "unit")]

import pytest  # noqa: E402
import support_ranks  # noqa: E402
from doubles_build import mpi_double, nccl_doubles, ucc_double  # noqa: E402
from workers import run_ranks  # noqa: E402

# Backend, device, and the environment of its ranks.
COLUMNS = [
    ("gloo", "cpu", dict),
    ("mpi", "cpu", mpi_double),
    ("ucc", "cpu", ucc_double),
    ("nccl", "cuda", nccl_doubles),
    ("gloo", "cuda", nccl_doubles),
]


def table() -> str:
    columns = {}
    for backend, device, environment in COLUMNS:
        first, second = run_ranks(
            support_ranks.supported,
            2,
            env=environment(),
            backend=backend,
            device=device,
        )
        # A sender cannot know that nobody may receive from anybody.
        columns[f"{backend}, {device}"] = {k: first[k] and second[k] for k in first}
    functions = next(iter(columns.values()))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in functions:
        cells = ("yes" if column[name] else "-" for column in columns.values())
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    """Before the table, the table, after it."""
    before, rest = DOCUMENT.read_text().split(BEGIN)
    written, after = rest.split(END)
    return before, written, after


@pytest.mark.slow
def test_the_table_says_what_there_is():
    assert parts()[1].strip() == table().strip()


if __name__ == "__main__":
    head, _, tail = parts()
    DOCUMENT.write_text(f"{head}{BEGIN}\n{table()}\n{END}{tail}")
