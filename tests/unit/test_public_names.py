# SPDX-License-Identifier: BSD-3-Clause
"""What dir() shows, and completion in a notebook with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import distlite

# What torch.distributed's tutorials, mpi4py's and the pages of docs use.
SOUGHT = (
    "Cartesian DeviceMesh DistBackendError DistError DistNetworkError DistStoreError "
    "FileStore Future HashStore P2POp PrefixStore ProcessGroup ReduceOp Store TCPStore "
    "Window Work all_gather all_gather_into_tensor all_gather_object "
    "all_gather_single all_reduce all_to_all all_to_all_single barrier "
    "batch_isend_irecv broadcast broadcast_object_list destroy_process_group exscan "
    "functional gather gather_object gather_v get_backend get_global_rank get_rank "
    "get_world_size group init_device_mesh init_process_group irecv is_available "
    "is_initialized isend monitored_barrier new_group new_subgroups "
    "notebook_launcher probe process_group recv recv_object_list reduce "
    "reduce_scatter reduce_scatter_tensor scan scatter scatter_object_list send "
    "send_object_list sendrecv shared_zeros spawn split_group wait_all testing"
)


def test_dir_of_the_package_is_what_programs_look_for():
    listed = dir(distlite)
    assert len(listed) == len(set(listed)) and 75 <= len(listed) <= 90
    assert set(SOUGHT.split()) <= set(listed)
    for name in listed:
        assert getattr(distlite, name) is not None


def test_names_that_dir_does_not_show_are_reachable():
    hidden = distlite._UNLISTED.split()
    assert hidden == sorted(hidden) and not set(hidden) & set(dir(distlite))
    assert set(hidden) <= {*distlite.__all__, *distlite._MODULES}
    for name in hidden:
        assert getattr(distlite, name) is not None
    names: dict[str, object] = {}
    exec("from distlite import *", names)
    assert set(distlite.__all__) <= set(names)


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
