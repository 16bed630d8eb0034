# SPDX-License-Identifier: BSD-3-Clause
"""What docs/architecture.md names is there: files, functions, types, layers."""

from __future__ import annotations

import re
from functools import cache

from c_source import ROOT, csrc_files
from test_layering import MAY_INCLUDE

PAGE = (ROOT / "docs" / "architecture.md").read_text()
FOLDERS = ("csrc", "python", "tests", "benchmarks", "docs", "examples")
FILE = re.compile(r"(?<![\w*/.-])[\w/-]+\.(?:c|h|pyi?|md)\b")
# In code: `dl_fold_run()`, or `distlite.shared_zeros()`.
CALL = re.compile(r"`(?:\w+\.)*(\w+)\(\)`")
# The second cell of a row whose first one is a function is the file that has it.
STEP = re.compile(r"^\| `(\w+)\(\)` \| `([^`]+)` \|", re.MULTILINE)
BESIDE = re.compile(r"`(\w+)\(\)`(?: and `\w+\(\)`)?\s+(?:in|\()\s*`([\w/]+\.\w+)`")


@cache
def files() -> dict[str, str]:
    """Path from the root to text, of what the page may name."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in [*found, *ROOT.glob("*.md")]
        if path.suffix in (".c", ".h", ".py", ".pyi", ".md")
    }


def named(name: str) -> list[str]:
    """The files whose paths end with the name."""
    return [path for path in files() if path == name or path.endswith(f"/{name}")]


def defines(path: str, name: str) -> bool:
    """Whether the file defines the function; a header may only declare it.

    In C the name of a defined function begins a line.
    """
    forms = {".c": rf"^{name}\(", ".h": rf"^(?:\w[\w *]* \*?)?{name}\("}
    form = forms.get(path[-2:], rf"^\s*(?:async )?def {name}\(")
    return bool(re.search(form, files()[path], re.MULTILINE))


def wrong_places(text: str) -> list[str]:
    return [
        f"{name}() is not in {where}"
        for name, where in [*STEP.findall(text), *BESIDE.findall(text)]
        if not any(defines(path, name) for path in named(where))
    ]


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


def test_functions_exist():
    names = set(CALL.findall(PAGE))
    assert len(names) > 60
    assert not {n for n in names if not any(defines(path, n) for path in files())}


def test_functions_are_where_the_page_says():
    assert len(STEP.findall(PAGE)) > 60
    assert wrong_places(PAGE) == []


def test_identifiers_of_the_core_exist():
    core = "\n".join(source.text for source in csrc_files())
    known = set(re.findall(r"\b(?:dlpy?|DL)_\w+", core))
    assert not set(re.findall(r"\b(?:dlpy?|DL)_\w+", PAGE)) - known


def test_layers_are_those_of_the_test():
    layers = PAGE.split("\n## Layers\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in layers.splitlines() if "|" in line]
    folders = set(re.findall(r"`([\w/]+)`", " ".join(cells)))
    # The row `pg/<backend>` is about the others.
    names = ("cpu", "nccl", "mpi", "ucc", "fake", "extension", "wrapper")
    backends = {f"pg/{name}" for name in names}
    assert folders == set(MAY_INCLUDE) - backends


def test_a_function_in_another_file_is_found():
    assert wrong_places("| `dl_group_run()` | `pg/group.c` | why |\n") == [
        "dl_group_run() is not in pg/group.c"
    ]
    assert wrong_places("`dl_group_run()` in `pg/group.c`, `x()` in `pg/group.c`")
    assert not wrong_places("`dl_group_run()` in `pg/collectives.c`")
