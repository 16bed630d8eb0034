# SPDX-License-Identifier: BSD-3-Clause
"""Writes python/module/docstrings.h: the signatures and docstrings of a stub as macros.

    python docstrings.py python/distlite/_C.pyi docstrings.h

The stub is the one source: editors show its text, setup.py compiles it into the
extension, and inspect and Sphinx read it from there.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
from pathlib import Path

TOP = """\
/* SPDX-License-Identifier: BSD-3-Clause */
/* The signatures and docstrings of python/distlite/_C.pyi, by setup.py: change them
 * there. */
#ifndef DISTLITE_PYTHON_MODULE_DOCSTRINGS_H
#define DISTLITE_PYTHON_MODULE_DOCSTRINGS_H
"""


def docstrings(stub: str) -> dict[str, str]:
    """By qualified name, 'all_reduce' or 'Store.get'."""
    found: dict[str, str] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                continue
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                # Overloads share one, which the first of them has.
                assert prefix + node.name not in found, prefix + node.name
                found[prefix + node.name] = inspect.cleandoc(text)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")

    visit(ast.parse(stub).body, "")
    return found


def signatures(stub: str) -> dict[str, str]:
    """The parameters of functions as CPython takes them from a docstring, by qualified
    name: 'get($self, /, key, *, timeout=None)'."""
    found: dict[str, str] = {}

    def visit(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{node.name}.")
            elif isinstance(node, ast.FunctionDef) and not is_property(node):
                # The first overload is the one with the defaults of all parameters.
                found.setdefault(prefix + node.name, signature(node, bool(prefix)))

    visit(ast.parse(stub).body, "")
    return found


def is_property(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).startswith("property") for each in node.decorator_list)


def signature(node: ast.FunctionDef, is_method: bool) -> str:
    args = node.args
    for each in [*args.posonlyargs, *args.args, *args.kwonlyargs]:
        each.annotation = None
    if is_method:
        (args.posonlyargs or args.args).pop(0)
    # The object or module itself is positional-only, so others come after its slash.
    parameters = ast.unparse(args).replace(" = ", "=")
    owner = "$self" if is_method else "$module"
    rest = f", {parameters}" if parameters else ""
    return f"{node.name}({owner}{'' if args.posonlyargs else ', /'}{rest})"


def literal(line: str) -> str:
    """JSON's escapes are C's, as long as the text is ASCII."""
    assert line.isascii(), line
    return json.dumps(line)


def header(stub: str) -> str:
    parts = [TOP]
    texts, functions = docstrings(stub), signatures(stub)
    for name in {**texts, **functions}:
        macro = f"DLPY_DOC_{name.replace('.', '_').upper()}"
        begin = f"{functions[name]}\n--\n\n" if name in functions else ""
        lines = (begin + texts.get(name, "")).split("\n")
        ends = ["\n"] * (len(lines) - 1) + [""]
        literals = [literal(line + end) for line, end in zip(lines, ends, strict=True)]
        joined = " \\\n".join(f"    {each}" for each in literals)
        parts.append(f"\n#define {macro} \\\n{joined}\n")
    parts.append("\n#endif\n")
    return "".join(parts)


if __name__ == "__main__":
    stub, target = map(Path, sys.argv[1:])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(header(stub.read_text()))
