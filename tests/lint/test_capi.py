# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes with Python's C interface that can be seen in the text."""

from __future__ import annotations

import re

import pytest
from c_source import Function, Source, csrc_files

NUMPY_FILE = "csrc/python/arrays/tensor_arg.c"
# Of a private copy of a dict, and for versions of Python that have a GIL.
BORROWING_FILES = {
    "csrc/python/arrays/cuda_arg.c",
    "csrc/python/module/free_threading.c",
}
# Files that take tuples apart which other libraries made; none reads its arguments so.
TUPLE_FILES = {
    NUMPY_FILE,
    "csrc/python/arrays/dlpack.c",
    "csrc/python/objects/safe_codec.c",
}

# The second of each, and what does both on one line: csrc/python/module/gil.h.
_BEGIN = re.compile(r"\bPy_BEGIN_ALLOW_THREADS\b|\bdlpy_gil_leave(?:_noting)?\(&")
_END = re.compile(r"\bPy_END_ALLOW_THREADS\b|\bdlpy_gil_return\(&")
_BOTH = re.compile(r"\bDLPY_END\(")
_PROTOTYPE = re.compile(r"^[\w *]*?\b(dl_\w+)\(([^;{}]*)\)[^;{}()]*[;{]", re.MULTILINE)
# Making and looking at deadlines does not block, nor does noting that a call may.
_HARMLESS = re.compile(r"dl_deadline_\w+|dl_store_fail_timeout|dl_waiting_\w+")
# What ends something may wait for threads, locks and files, without a deadline.
_ENDING = re.compile(r"dl_\w+_(?:abort|close|end|fini|free|leave|stop|unref)")
# These only free memory, or take a lock that is held for an instant.
FREEING = {
    "dl_blocks_fini",
    "dl_buffer_fini",
    "dl_region_free",
    "dl_secret_unref",
}


def blocking_functions(headers: list[Source]) -> set[str]:
    """Core functions that take a deadline, which is the licence to block, and those
    that end something."""
    found = set()
    for header in headers:
        for name, parameters in _PROTOTYPE.findall(header.code):
            if name in FREEING or _HARMLESS.fullmatch(name):
                continue
            if "dl_deadline" in parameters or _ENDING.fullmatch(name):
                found.add(name)
    return found


def blocking_errors(source: Source, blocking: set[str]) -> list[str]:
    """Calls that may block while this thread holds the interpreter.

    A function that takes a deadline itself is part of the core's side: its caller has
    let go of the interpreter already."""
    errors = []
    for function in source.functions:
        if any("dl_deadline" in parameter for parameter in function.parameters):
            continue
        for number, line, is_released in _lines(function):
            calls = [name for name in re.findall(r"\b(dl_\w+)\(", line)]
            if not is_released and any(name in blocking for name in calls):
                errors.append(f"{source.path}:{number} blocks: {line.strip()}")
            if is_released and re.search(r"\b_?Py[A-Z_]\w*\(", line):
                errors.append(f"{source.path}:{number} without GIL: {line.strip()}")
    return errors


def _lines(function: Function) -> list[tuple[int, str, bool]]:
    is_released = False
    lines = []
    for number, line in enumerate(function.body.split("\n"), 1):
        if _BEGIN.search(line):
            is_released = True
        elif _END.search(line):
            is_released = False
        else:
            place = function.line + function.head_lines + number - 1
            lines.append((place, line, is_released or bool(_BOTH.search(line))))
    return lines


def text_errors(source: Source) -> list[str]:
    rules = {
        r"\bPyModule_AddObject\(": "PyModule_AddObject steals; use ...AddObjectRef",
        r"\bstatic\s+(?:_Thread_local\s+)?Py\w*Object\s*\*": "a static PyObject *",
        r"\bstatic\s+PyTypeObject\b(?!\s*\*\s*\n)": "a static type",
        r"\bPyErr_Clear\(\)\s*;\s*return NULL": "NULL without an exception",
    }
    errors = []
    for number, line in enumerate(source.code.split("\n"), 1):
        for pattern, why in rules.items():
            # A function may be static: its type stands on a line of its own.
            is_declarator = not re.fullmatch(r"static [\w ]+\*", line.strip())
            if re.search(pattern, line) and is_declarator:
                errors.append(f"{source.path}:{number} {why}")
    return errors


def room_errors(source: Source) -> list[str]:
    is_python = source.path.startswith("csrc/python/")
    errors = []
    if not is_python and re.search(r"\bPy(?:Object|_|Gil|Err)", source.code):
        errors.append(f"{source.path}: Python outside csrc/python")
    for _, name in source.includes:
        if name == "Python.h" and not is_python:
            errors.append(f"{source.path}: Python.h outside csrc/python")
        if name.startswith("numpy/") and source.path != NUMPY_FILE:
            errors.append(f"{source.path}: numpy outside {NUMPY_FILE}")
    return errors


def test_the_core_s_blocking_calls_let_go_of_the_interpreter():
    files = csrc_files()
    headers = [f for f in files if f.path.endswith(".h") and "/python/" not in f.path]
    blocking = blocking_functions(headers)
    assert {"dl_store_get", "dl_group_run", "dl_tcp_store_new"} <= blocking
    assert {"dl_store_unref", "dl_group_close", "dl_window_end"} <= blocking
    assert blocking.isdisjoint(FREEING)
    errors = [
        error
        for source in files
        if source.path.startswith("csrc/python/")
        for error in blocking_errors(source, blocking)
    ]
    assert not errors, "\n".join(errors)


def parser_errors(source: Source) -> list[str]:
    """Arguments that are not read by csrc/python/module/arguments.c."""
    if source.path in TUPLE_FILES:
        return []
    calls = re.findall(r"\b_?PyArg_\w+(?=\()", source.code)
    return [f"{source.path}: {call}(), not dlpy_take_arguments()" for call in calls]


# What they return, another thread may drop before it is held.
_BORROWING = re.compile(
    r"\b(?:PyDict_GetItem|PyDict_GetItemString|PyDict_GetItemWithError|PyList_GetItem"
    r"|PyWeakref_GetObject|PyImport_AddModule|PySys_GetObject|PySequence_Fast)(?=\()"
)


def borrowing_errors(source: Source) -> list[str]:
    """Borrowed references to what does not belong to the caller alone."""
    if source.path in BORROWING_FILES:
        return []
    calls = _BORROWING.findall(source.code)
    return [f"{source.path}: {call}() borrows: free_threading.h" for call in calls]


@pytest.mark.parametrize(
    "check", [text_errors, room_errors, parser_errors, borrowing_errors]
)
def test_csrc_keeps_the_rules(check):
    errors = [error for source in csrc_files() for error in check(source)]
    assert not errors, "\n".join(errors)


BODY = """\
static PyObject *
f(PyObject *self)
{
    dl_deadline deadline = dl_deadline_after(timeout);
%s
}
"""


@pytest.mark.parametrize(
    ("body", "finds"),
    [
        ("    dl_wait(x, deadline);", 1),
        ("    Py_BEGIN_ALLOW_THREADS\n    dl_wait(x);\n    Py_END_ALLOW_THREADS", 0),
        ("    Py_BEGIN_ALLOW_THREADS\n    Py_END_ALLOW_THREADS\n    dl_wait(x);", 1),
        ("    Py_BEGIN_ALLOW_THREADS\n    Py_DECREF(x);\n    Py_END_ALLOW_THREADS", 1),
        ("    /* dl_wait(x) */", 0),
        ("    dl_x_free(x);", 1),
        ("    DLPY_END(dl_x_free(x));", 0),
        ("    DLPY_END(dl_x_free(x));\n    dl_x_free(x);", 1),
        ("    dl_buffer_fini(&x);", 0),
    ],
)
def test_a_call_that_holds_the_interpreter_is_seen(body, finds):
    text = "int\ndl_wait(int x,\n        dl_deadline deadline);\n"
    text += "void dl_x_free(dl_x *x);\nvoid dl_buffer_fini(dl_buffer *buffer);\n"
    blocking = blocking_functions([Source("csrc/x.h", text)])
    assert blocking == {"dl_wait", "dl_x_free"}
    errors = blocking_errors(Source("csrc/python/x.c", BODY % body), blocking)
    assert len(errors) == finds


def test_a_function_with_a_deadline_may_block():
    text = "int\nf(dl_deadline deadline)\n{\n    dl_wait(deadline);\n}\n"
    assert not blocking_errors(Source("csrc/python/x.c", text), {"dl_wait"})


@pytest.mark.parametrize(
    "text",
    [
        "PyModule_AddObject(module, name, object);",
        "static PyObject *cached;",
        "static PyObject *cached = NULL;",
        "static PyTypeObject StoreType = {",
    ],
)
def test_a_bad_line_is_seen(text):
    assert text_errors(Source("csrc/python/x.c", text + "\n"))


def test_another_parser_of_arguments_is_seen():
    text = 'if (!PyArg_ParseTuple(args, "i", &number)) {\n'
    assert parser_errors(Source("csrc/python/x.c", text))
    assert not parser_errors(Source(NUMPY_FILE, text))


def test_a_borrowed_reference_is_seen():
    text = 'PyObject *path = PySys_GetObject("path");\n'
    assert borrowing_errors(Source("csrc/python/x.c", text))
    assert not borrowing_errors(
        Source("csrc/python/x.c", "PyDict_GetItemStringRef(a, b, &c);")
    )


def test_a_static_function_is_no_static_object():
    assert not text_errors(Source("csrc/python/x.c", "static PyObject *\nf(void)\n"))


def test_python_in_the_core_is_seen():
    assert room_errors(Source("csrc/base/x.c", "PyObject *x;\n"))
    assert room_errors(Source("csrc/base/x.c", "#include <Python.h>\n"))
    include = "#include <numpy/arrayobject.h>\n"
    assert room_errors(Source("csrc/python/x.c", include))
    assert not room_errors(Source(NUMPY_FILE, include))
