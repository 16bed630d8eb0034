# SPDX-License-Identifier: BSD-3-Clause
"""Writes python/distlite/__init__.pyi: the names of the package for type checkers.

The tables of `__init__.py` are the one list of them, but are made into imports only as
the package runs.  `make format` calls this program; a lint test compares.
"""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "python" / "distlite"
STUB = PACKAGE / "__init__.pyi"
LONGEST_LINE = 88

TOP = """\
# SPDX-License-Identifier: BSD-3-Clause
# Written by docs/package_stub.py from the tables of __init__.py: change them there, and
# run `make format`.
# fmt: off
# ruff: noqa: I001
"""


def tables(source: str) -> dict[str, object]:
    """The values of the upper-case names of `__init__.py`, without importing it."""
    found: dict[str, object] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            if name.isupper():
                found[name] = ast.literal_eval(_flat(node.value))
    return found


def _flat(node: ast.expr) -> ast.expr:
    """A tuple without stars."""
    if not isinstance(node, ast.Tuple):
        return node
    parts: list[ast.expr] = []
    for each in node.elts:
        inner = each.value if isinstance(each, ast.Starred) else each
        parts += inner.elts if isinstance(inner, ast.Tuple) else [inner]
    return ast.Tuple(parts, ast.Load())


def _import(home: str, name: str) -> str:
    line = f"from .{home} import {name} as {name}"
    if len(line) <= LONGEST_LINE:
        return line
    return f"from .{home} import (\n    {name} as {name},\n)"


def stub(source: str) -> str:
    """The text of `__init__.pyi`."""
    found = tables(source)
    names: list[tuple[str, str]] = []
    for table in ("_AT_ONCE", "_LATER"):
        homes = found[table]
        assert isinstance(homes, dict)
        names += [(home, name) for home in homes for name in homes[home].split()]
    modules = found["_MODULES"]
    assert isinstance(modules, tuple)
    lines = [TOP, "from ._version import __version__ as __version__"]
    lines += [_import(home, name) for home, name in names]
    lines += ["", *(f"from . import {name} as {name}" for name in modules), ""]
    public = sorted(name for _, name in names if not name.startswith("_"))
    lines += ["__all__ = [", *(f'    "{name}",' for name in public), "]", ""]
    return "\n".join(lines)


if __name__ == "__main__":
    STUB.write_text(stub((PACKAGE / "__init__.py").read_text()))
