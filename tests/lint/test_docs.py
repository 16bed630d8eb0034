# SPDX-License-Identifier: BSD-3-Clause
"""Tables of the documentation are whole, the reference has every public name, and the
files that docs/architecture.md names exist.

Sphinx takes a table with a missing or a stray `|` for one with empty cells, or for
text, and says nothing.
"""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import distlite

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md")])
REFERENCE = ROOT / "docs" / "reference"

DELIMITER = re.compile(r"\|?(?:\s*:?-+:?\s*\|)+(?:\s*:?-+:?\s*)?")
FENCE = re.compile(r"\s*(```+|~~~+)")


def cells(row: str) -> int:
    """As GFM counts them: a `|` divides cells also inside of code, unless escaped."""
    inner = row.strip().removeprefix("|")
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    return len(re.findall(r"(?<!\\)\|", inner)) + 1


def prose(text: str) -> list[str]:
    """The lines, with those of code blocks empty."""
    lines, fence = [], ""
    for line in text.splitlines():
        found = FENCE.match(line)
        if not fence and found:
            fence = found[1]
            lines.append("")
        elif fence:
            lines.append("")
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        else:
            lines.append(line)
    return lines


def faults(text: str) -> list[str]:
    """Where a table is broken: 'line 12: 3 cells, not 2'."""
    found = []
    lines = ["", *prose(text), ""]
    width = 0  # of the table that the line before belongs to
    for number, (line, below) in enumerate(pairwise(lines[1:]), 1):
        begins = bool(DELIMITER.fullmatch(below.strip())) and "|" in line
        if begins and not width:
            width = cells(line)
        if not line.strip():
            width = 0
        elif width and cells(line) != width:
            found.append(f"line {number}: {cells(line)} cells, not {width}")
        elif not width and line.lstrip().startswith("|"):
            found.append(f"line {number}: a row without a table's head")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_are_whole(page: Path):
    assert faults(page.read_text()) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |\n", []),
        ("| a | b |\n|:--|--:|\n| `x\\|y` | 2 |\n\ntext | text\n", []),
        ("```\n| a |\n```\n", []),
        ("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n", ["line 3: 3 cells, not 2"]),
        ("| a | b |\n|---|---|\n| `x|y` | 2 |\n", ["line 3: 3 cells, not 2"]),
        ("| a | b |\n|---|---|\n| 1 |\n", ["line 3: 1 cells, not 2"]),
        ("| a | b |\n|---|---|---|\n| 1 | 2 |\n", ["line 2: 3 cells, not 2"]),
        ("| a | b |\n\n| 1 | 2 |\n", [f"line {n}: a row without a table's head"
                                      for n in (1, 3)]),
        ("| a | b |\n|---|---|\ntext\n", ["line 3: 1 cells, not 2"]),
    ],
)  # fmt: skip
def test_broken_tables_are_found(text: str, expected: list[str]):
    assert faults(text) == expected


def documented() -> list[str]:
    """Full names of what the pages of the reference are about."""
    names = []
    module = ""
    for page in sorted(REFERENCE.glob("*.md")):
        for kind, name in re.findall(
            r"^\.\. (currentmodule|autofunction|autoclass|autoexception|data):: (\S+)$",
            page.read_text(),
            re.MULTILINE,
        ):
            if kind == "currentmodule":
                module = name
            else:
                names.append(f"{module}.{name}")
    return names


def test_the_reference_has_every_public_name_once():
    names = [
        name.removeprefix("distlite.") for name in documented() if name.count(".") == 1
    ]
    assert sorted(names) == sorted(distlite.__all__)


@pytest.mark.parametrize("module", ["data_parallel", "functional", "spawn", "testing"])
def test_the_reference_has_every_name_of_a_public_module(module: str):
    public = __import__(f"distlite.{module}", fromlist=["__all__"]).__all__
    prefix = f"distlite.{module}."
    names = [
        name.removeprefix(prefix) for name in documented() if name.startswith(prefix)
    ]
    # SpawnContext is torch's older name of ProcessContext.
    assert sorted(names) == sorted(set(public) - {"SpawnContext"})


def test_pictures_were_drawn_from_the_tables_of_their_page():
    """`make pictures` draws them anew."""
    command = [sys.executable, ROOT / "benchmarks" / "pictures.py", "--check"]
    found = subprocess.run(command, capture_output=True, text=True)
    assert found.stdout == "up to date\n", found.stdout + found.stderr


def test_files_of_the_architecture_exist():
    folders = ("csrc", "python", "tests", "benchmarks", "docs", "examples")
    files = [path for f in folders for path in ROOT.glob(f"{f}/**/*")]
    paths = [f"/{path.relative_to(ROOT)}" for path in files]
    page = (ROOT / "docs" / "architecture.md").read_text()
    names = set(re.findall(r"(?<![\w*/.-])[\w/-]+\.(?:c|h|pyi?)\b", page))
    missing = {n for n in names if not any(path.endswith(f"/{n}") for path in paths)}
    assert missing == {"Python.h"}
