# SPDX-License-Identifier: BSD-3-Clause
"""What dir() shows, and completion in a notebook with it."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import distlite

MODULES = {
    *("data_parallel", "device_mesh", "distributed_c10d", "elastic", "functional"),
    *("launch", "multiprocessing", "run", "spawn", "stores", "testing"),
}


def test_dir_of_the_package_is_its_public_names():
    listed = dir(distlite)
    assert set(listed) == {*distlite.__all__, *MODULES, "__version__"}
    found = {name: getattr(distlite, name) for name in listed}
    modules = {
        name for name, value in found.items() if isinstance(value, types.ModuleType)
    }
    assert modules == MODULES


def test_names_are_found_as_fast_as_those_of_an_import_statement():
    # A name is compared by its address if both are interned, and else by its text.
    for name in [each for each in vars(distlite) if each in distlite.__all__]:
        assert sys.intern("".join([name[:1], name[1:]])) is name, name


def test_asking_for_dir_imports_nothing():
    program = (
        "import sys, distlite; before = set(sys.modules); dir(distlite);"
        "print(set(sys.modules) - before, 'numpy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set() False\n"


def test_private_names_of_torch_can_be_had_but_are_not_shown():
    for name in ("_get_default_group", "_reduce_scatter_base", "_coalescing_manager"):
        assert callable(getattr(distlite, name))
        assert name not in dir(distlite)


def test_a_wrong_name_is_told():
    with pytest.raises(
        AttributeError, match="'distlite' has no attribute 'all_redcue'"
    ):
        distlite.all_redcue  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'all_redcue'"):
        from distlite import all_redcue  # noqa: F401
