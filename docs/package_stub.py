# SPDX-License-Identifier: BSD-3-Clause
"""Writes python/distlite/__init__.pyi: the names of the package for type checkers.

The tables of `__init__.py` are the one list of them, but are made into imports only as
the package runs.  `make format` calls this program; a lint test compares.
"""

from __future__ import annotations

import ast
import textwrap
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


def _listed(before: str, names: list[str], brackets: str) -> str:
    """Names behind `before`: in one line, or in brackets and full lines."""
    line = f"{before}{', '.join(names)}"
    if brackets == "()" and len(line) <= LONGEST_LINE:
        return line
    # "name as name" stays in a line.
    words = ", ".join(name.replace(" ", "\0") for name in names)
    text = textwrap.indent(textwrap.fill(words, LONGEST_LINE - 5), "    ")
    return f"{before}{brackets[0]}\n{text},\n{brackets[1]}".replace("\0", " ")


def stub(source: str) -> str:
    """The text of `__init__.pyi`.

    What `__all__` has is exported; other names have to be imported as themselves.
    """
    found = tables(source)
    names: dict[str, list[str]] = {}
    for table in ("_AT_ONCE", "_LATER"):
        homes = found[table]
        assert isinstance(homes, dict)
        for home in homes:
            names.setdefault(home, []).extend(homes[home].split())
    modules = found["_MODULES"]
    assert isinstance(modules, tuple)
    lines = [TOP, "from ._version import __version__ as __version__"]
    for home, own in names.items():
        told = [n if n[0] != "_" else f"{n} as {n}" for n in own]
        if told:
            lines.append(_listed(f"from .{home} import ", told, "()"))
    public = sorted(n for own in names.values() for n in own if n[0] != "_")
    lines += ["", *(f"from . import {name} as {name}" for name in modules), ""]
    lines += [_listed("__all__ = ", [f'"{name}"' for name in public], "[]"), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    STUB.write_text(stub((PACKAGE / "__init__.py").read_text()))
