# SPDX-License-Identifier: BSD-3-Clause
"""Every public name has a docstring that says what it takes, and shows how it is used.

tests/unit/test_docstrings.py runs the examples.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
from collections.abc import Iterator
from enum import EnumMeta
from pathlib import Path
from typing import Any

import pytest
from public_names import public

from distlite import _C

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "csrc" / "python" / "module"))
import docstrings as of_the_stub  # noqa: E402

STUB = of_the_stub.docstrings((ROOT / "python/distlite/_C.pyi").read_text())

# An example would show nothing of these.
WITHOUT_EXAMPLE = {
    # constants and types
    "default_pg_timeout",
    "GroupName",
    "reduce_op",
    # as of AllreduceOptions
    *("AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions"),
    *("GatherOptions", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions"),
    # what is there depends on the machine
    *("is_gloo_available", "is_mpi_available", "is_nccl_available"),
    *("is_ucc_available", "is_xccl_available"),
    # what stops the program, or needs a GPU
    "breakpoint",
    "ProcessGroupNCCL",
}
PUBLIC = dict(public())


IN_C = (
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)


def functions_in_c() -> Iterator[tuple[str, Any]]:
    for name, value in vars(_C).items():
        if isinstance(value, types.BuiltinFunctionType):
            yield name, value
        elif isinstance(value, type):
            yield name, value
            for member, method in vars(value).items():
                if isinstance(method, IN_C):
                    yield f"{name}.{member}", method


def test_the_extension_says_what_the_stub_says():
    in_c = {
        name: inspect.getdoc(value)
        for name, value in functions_in_c()
        if name in STUB or not (name.startswith("_") or "._" in name)
    }
    assert in_c == STUB


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - WITHOUT_EXAMPLE))
def test_a_public_name_has_an_example(name: str):
    text = inspect.getdoc(PUBLIC[name]) or ""
    first = text.split("\n")[0]
    assert first.endswith("."), f"the first line is no sentence: {first}"
    assert re.search(r"^Example:\n    >>> ", text, re.MULTILINE), "no example"


def test_the_exceptions_are_none_that_have_an_example():
    assert PUBLIC.keys() >= WITHOUT_EXAMPLE
    assert not [
        name
        for name in WITHOUT_EXAMPLE
        if "Example:" in (inspect.getdoc(PUBLIC[name]) or "")
    ]


def with_parameters() -> Iterator[Any]:
    for name, value in PUBLIC.items():
        if name in WITHOUT_EXAMPLE or not callable(value):
            continue
        yield pytest.param(value, id=name)
        if isinstance(value, type):
            for member, method in vars(value).items():
                if not callable(method):
                    continue
                if ">>>" in (inspect.getdoc(method) or ""):
                    yield pytest.param(method, id=f"{name}.{member}")


def parameters_of(value: Any) -> list[str]:
    """Without those that are private, or stand for any number of arguments."""
    if isinstance(value, EnumMeta):
        return []
    try:
        found = inspect.signature(value).parameters.values()
    except ValueError:
        return []  # of classes whose constructor has none of its own
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each.name
        for each in found
        if each.kind not in variadic
        and each.name != "self"
        and not each.name.startswith("_")
    ]


@pytest.mark.parametrize("value", list(with_parameters()))
def test_args_are_the_parameters(value: Any):
    text = inspect.getdoc(value) or ""
    part = re.search(r"^Args:\n(.*?)(?=\n\n|\Z)", text, re.MULTILINE | re.DOTALL)
    listed = re.findall(r"^    (\w+):", part[1], re.MULTILINE) if part else []
    assert listed == parameters_of(value)
