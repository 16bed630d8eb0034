# SPDX-License-Identifier: BSD-3-Clause
"""What docs/architecture.md names is there: files, folders, layers."""

from __future__ import annotations

import re
from functools import cache

from c_source import ROOT
from test_layering import MAY_INCLUDE

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FOLDERS = ("csrc", "python", "tests", "benchmarks", "docs", "examples")
FILE = re.compile(r"(?<![\w*/.-])[\w/-]+\.(?:c|h|pyi?|md)\b")


@cache
def files() -> list[str]:
    """The paths from the root of what the page may name."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return [str(path.relative_to(ROOT)) for path in [*found, *ROOT.glob("*.md")]]


def named(name: str) -> list[str]:
    """The files whose paths end with the name."""
    return [path for path in files() if path == name or path.endswith(f"/{name}")]


def test_files_exist():
    missing = {name for name in FILE.findall(PAGE) if not named(name)}
    assert missing == {"Python.h"}


def test_folders_of_the_tree_exist():
    """Those of its code block, by their indentation."""
    tree = PAGE[PAGE.index("\n## The tree\n") :]
    parents: list[str] = []
    for indent, name in re.findall(
        r"^( *)([\w/]+)/(?= |$)", tree.split("```")[1], re.M
    ):
        del parents[len(indent) // 2 :]
        parents.append(name)
        assert (ROOT / "/".join(parents)).is_dir(), "/".join(parents)


def test_layers_are_those_of_the_test():
    layers = PAGE.split("\n## Layers\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in layers.splitlines() if "|" in line]
    folders = set(re.findall(r"`([\w/]+)`", " ".join(cells)))
    # The row `pg/<backend>` is about the others.
    names = ("cpu", "nccl", "mpi", "ucc", "fake", "extension")
    backends = {f"pg/{name}" for name in names}
    assert folders == set(MAY_INCLUDE) - backends
