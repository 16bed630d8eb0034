# SPDX-License-Identifier: BSD-3-Clause
"""How long things may be.  What truly reads better longer says why in EXEMPT."""

from __future__ import annotations

import ast
import fnmatch
import re
from collections.abc import Iterator

import pytest
from c_source import ROOT, Function, Source, csrc_files

C_FILE_LINES = 400
HEADER_LINES = 150
FUNCTION_LINES = 60
PARAMETERS = 5
NESTING = 3
COMMENT_SHARE = (0.12, 0.25)  # of the lines of csrc that are not blank
PYTHON_FILE_LINES = 400
PYTHON_FUNCTION_LINES = 30

# "path" or "path:function", with stars -> {what: why}; `what` is the finding's word.
EXEMPT: dict[str, dict[str, str]] = {
    "csrc/pg/mpi/mpi_family.h": {
        "lines": "code that each family's file includes, and not declarations",
    },
    "csrc/*:*_compare_set": {
        "parameters": "a store, a key, two values, a result and a deadline",
    },
}

_CONTROL = ("if", "for", "while", "switch")
_WORD = re.compile(r"\w+|[(){};]")
_LITERAL = r'"(?:\\.|[^"\\\n])*"'
_STRINGS = re.compile(
    rf"(?P<head>PyDoc_STRVAR\(\s*\w+,\s*|Py_tp_doc,\s*|\.m_doc = )?"
    rf"(?P<body>{_LITERAL}(?:\s*{_LITERAL})*)"
)
_SIGNATURE_END = r"\n--\n\n"  # as it is written in C


def nesting(body: str) -> int:
    """Depth of control statements inside a function's body."""
    stack: list[bool] = []
    before_parenthesis: list[str] = []
    previous, closed_by = "", ""
    deepest = 0
    for token in _WORD.findall(body):
        if token == "(":
            before_parenthesis.append(previous)
        elif token == ")":
            closed_by = before_parenthesis.pop() if before_parenthesis else ""
        elif token == "{":
            is_loop_macro = closed_by.isupper() and "EACH" in closed_by
            is_control = previous in ("else", "do") or (
                previous == ")" and (closed_by in _CONTROL or is_loop_macro)
            )
            stack.append(is_control)
            deepest = max(deepest, sum(stack))
        elif token == "}" and stack:
            stack.pop()
        previous = token
    return deepest


def comment_lines(text: str) -> int:
    return sum(m[0].count("\n") + 1 for m in re.finditer(r"/\*.*?\*/", text, re.DOTALL))


def documentation_lines(text: str) -> int:
    """Lines of what help() shows: documentation, if to the compiler only a string."""
    return sum(
        m["body"].count("\n") + 1
        for m in _STRINGS.finditer(text)
        if m["head"] or _SIGNATURE_END in m["body"]
    )


def file_findings(source: Source) -> Iterator[tuple[str, str, str]]:
    """(exemption key, what, finding)"""
    count = source.text.count("\n")
    limit = HEADER_LINES if source.path.endswith(".h") else C_FILE_LINES
    if count > limit:
        yield source.path, "lines", f"{source.path}: {count} lines, not {limit}"
    for function in source.functions:
        yield from function_findings(source.path, function)


def function_findings(path: str, function: Function) -> Iterator[tuple[str, str, str]]:
    key = f"{path}:{function.name}"
    measured = {
        "lines": (function.line_count, FUNCTION_LINES),
        "parameters": (len(function.parameters), PARAMETERS),
        "nesting": (nesting(function.body), NESTING),
    }
    for what, (got, limit) in measured.items():
        if got > limit:
            yield key, what, f"{path}:{function.line} {function.name}: {got} {what}"


def python_findings(path: str, text: str) -> Iterator[tuple[str, str, str]]:
    count = text.count("\n")
    if count > PYTHON_FILE_LINES:
        yield path, "lines", f"{path}: {count} lines, not {PYTHON_FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            docstring = ast.get_docstring(node, clean=False)
            lines -= 0 if docstring is None else docstring.count("\n") + 1
            if lines > PYTHON_FUNCTION_LINES:
                key = f"{path}:{node.name}"
                yield key, "lines", f"{path}:{node.lineno} {node.name}: {lines} lines"


def all_findings() -> list[tuple[str, str, str]]:
    findings = [f for source in csrc_files() for f in file_findings(source)]
    for path in sorted((ROOT / "python").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        findings += python_findings(name, path.read_text())
    return findings


def is_exempt(key: str, what: str) -> bool:
    return any(
        what in reasons and fnmatch.fnmatch(key, pattern)
        for pattern, reasons in EXEMPT.items()
    )


def test_nothing_is_over_budget():
    over = [text for key, what, text in all_findings() if not is_exempt(key, what)]
    assert not over, "\n".join(over)


def comment_share(texts: list[str]) -> float:
    lines = [line for text in texts for line in text.split("\n") if line.strip()]
    comments = sum(comment_lines(text) + documentation_lines(text) for text in texts)
    return comments / len(lines)


def test_comments_are_neither_missing_nor_everywhere():
    share = comment_share([source.text for source in csrc_files()])
    low, high = COMMENT_SHARE
    assert low <= share <= high, f"{share:.1%} of the lines of csrc are comments"


SAMPLE = """\
static int
small(int a, const char *b)
{
    /* if (this) { counted { } } */
    return a + (int)strlen("{");
}

%sint
large(int a, int b, int c, int (*d)(int, int), int e, int f)
{
    if (a) {
        for (;;) {
            do {
                switch (b) {
                case 1: {
                    use((point){1, 2});
                }
                }
            } while (c);
        }
    }
%s    return 0;
}
"""


def test_the_measures_measure():
    source = Source("csrc/x.c", SAMPLE % ("", "    a++;\n" * 60))
    small, large = source.functions
    assert (small.name, small.line, small.line_count) == ("small", 2, 5)
    assert small.parameters == ("int a", "const char *b")
    assert nesting(small.body) == 0
    assert (large.name, large.line, len(large.parameters)) == ("large", 9, 6)
    assert large.line_count == 75
    assert nesting(large.body) == 4
    assert [what for _, what, _ in file_findings(source)] == [
        "lines",
        "parameters",
        "nesting",
    ]


@pytest.mark.parametrize(("suffix", "limit"), [(".c", 400), (".h", 150)])
def test_a_long_file_is_seen(suffix, limit):
    assert not list(file_findings(Source(f"csrc/x{suffix}", "int x;\n" * limit)))
    assert list(file_findings(Source(f"csrc/x{suffix}", "int x;\n" * (limit + 1))))


def test_a_long_python_function_is_seen():
    text = 'def f():\n    """Not\n    counted."""\n' + "    pass\n" * 30
    assert list(python_findings("x.py", text)) == [
        ("x.py:f", "lines", "x.py:1 f: 31 lines")
    ]


def test_comment_lines_are_counted():
    text = "/* a */ int x; /* b\n c */\n\nint y;\n"
    assert comment_lines(text) == 3
    assert comment_share([text, "int z;\n"]) == 3 / 4


def test_documentation_of_methods_is_counted():
    text = """\
/* "a" */
PyDoc_STRVAR(x_doc, "x($self)\\n--\\n\\n"
                    "Does \\"x\\".");
PyDoc_STRVAR(
    y_doc,
    "Without a signature.");
static PyMethodDef methods[] = {
    {"z", z, METH_NOARGS,
     "z($self)\\n--\\n\\n"
     "Does z."},
};
static PyType_Slot slots[] = {
    {Py_tp_doc, "What it is."},
};
const char *text = "not"
                   "this";
"""
    assert documentation_lines(text) == 2 + 1 + 2 + 1
    assert comment_share([text]) == (1 + 6) / 16


def test_every_exemption_is_needed():
    findings = all_findings()
    unused = [
        f"{pattern}: {what}"
        for pattern, reasons in EXEMPT.items()
        for what in reasons
        if not any(
            what == found and fnmatch.fnmatch(key, pattern)
            for key, found, _ in findings
        )
    ]
    assert not unused
