# SPDX-License-Identifier: BSD-3-Clause
"""Names, parameters and defaults are torch's, but for what is listed here.

The table was recorded from torch 2.13; `python tests/unit/test_signatures.py` does it
again, and tests/parity/test_signatures_live.py compares it with the torch at hand.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import distlite

TABLE = Path(__file__).parents[1] / "data" / "torch_signatures.json"

# By the name of torch's module after "torch.distributed", names with dots in them.
NAMES = {
    "": """
        DeviceMesh DeviceMesh.from_group DeviceMesh.get_all_groups
        DeviceMesh.get_coordinate DeviceMesh.get_group DeviceMesh.get_local_rank
        DeviceMesh.get_rank DeviceMesh.size breakpoint init_device_mesh is_available
        register_rendezvous_handler rendezvous
    """,
    "distributed_c10d": """
        Backend Backend.register_backend BackendConfig P2POp _all_gather_base
        _coalescing_manager _get_default_group _get_default_store
        _get_process_group_name _rank_not_in_group _reduce_scatter_base
        _store_based_barrier all_gather all_gather_coalesced all_gather_into_tensor
        all_gather_object all_gather_single all_reduce all_reduce_coalesced all_to_all
        all_to_all_single barrier batch_isend_irecv broadcast broadcast_object_list
        destroy_process_group gather gather_object get_backend get_backend_config
        get_default_backend_for_device get_global_rank get_group_rank
        get_node_local_rank get_pg_count get_process_group_ranks get_rank
        get_world_size init_process_group irecv is_backend_available is_gloo_available
        is_initialized is_mpi_available is_nccl_available is_torchelastic_launched
        is_ucc_available is_xccl_available isend monitored_barrier new_group
        new_subgroups new_subgroups_by_enumeration record_comm recv recv_object_list
        reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
        scatter_object_list send send_object_list shrink_group split_group
        supports_complex
    """,
}

# Ours, after torch's: (parameters, what they are for).
MORE = {
    "all_gather_object": (["safe"], "no code runs when objects are loaded"),
    "broadcast_object_list": (["safe"], "the same"),
    "gather_object": (["safe"], "the same"),
    "recv_object_list": (["safe"], "the same"),
    "scatter_object_list": (["safe"], "the same"),
    "send_object_list": (["safe"], "the same"),
}
_WITH_STREAM = """
    _all_gather_base _reduce_scatter_base all_gather all_gather_into_tensor
    all_gather_single all_reduce all_to_all all_to_all_single broadcast gather irecv
    isend recv reduce reduce_scatter reduce_scatter_single reduce_scatter_tensor scatter
    send
"""
MORE["init_process_group"] = (["enable_reconfigure"], "of torch 2.14")
for _name in _WITH_STREAM.split():
    MORE[_name] = (["stream"], "orders arrays of libraries without a current stream")
# torch's own machinery, which is not for users.
LESS = {
    "DeviceMesh": ["_layout", "_rank_map", "_root_mesh"],
}
CASES = [(module, name) for module, names in NAMES.items() for name in names.split()]


def plain(default: Any) -> Any:
    """A default as JSON knows it."""
    if default is inspect.Parameter.empty:
        return "required"
    if isinstance(default, timedelta):
        return f"{default.total_seconds():g} s"
    if default is None or type(default) in (bool, int, float, str):
        return default
    return str(default).removeprefix("ReduceOp.")


def signature_of(package: Any, module: str, name: str) -> list[list[Any]]:
    """[[name, kind, default], ...] of a function, or of a class's constructor."""
    where = f"{package.__name__}.{module}".rstrip(".")
    found: Any = import_module(where)
    for part in name.split("."):
        found = getattr(found, part)
    if name == "Backend":
        found = found.__new__
    elif inspect.isclass(found) and inspect.isfunction(found.__init__):
        found = found.__init__
    parameters = list(inspect.signature(found).parameters.values())
    if parameters and parameters[0].name in ("self", "cls"):
        del parameters[0]
    return [[p.name, p.kind.name, plain(p.default)] for p in parameters]


def record(package: Any) -> dict[str, list[list[Any]]]:
    """The table of torch."""
    return {name: signature_of(package, module, name) for module, name in CASES}


@pytest.mark.parametrize(("module", "name"), CASES)
def test_signatures(module, name):
    expected = json.loads(TABLE.read_text())[name]
    expected = [each for each in expected if each[0] not in LESS.get(name, ())]
    ours = signature_of(distlite, module, name)
    more = MORE.get(name, ([], ""))[0]
    assert ours[: len(expected)] == expected
    assert [each[0] for each in ours[len(expected) :]] == more
    # What is ours never has to be given.
    assert all(each[2] != "required" for each in ours[len(expected) :])


def test_all_names_of_torch_are_there():
    table = json.loads(TABLE.read_text())["names"]
    assert [name for name in table["distributed_c10d"] if not has(name)] == []
    missing = [name for name in table["distributed"] if not has(name)]
    assert missing == []


def has(name: str) -> bool:
    """Whether the package has it, and says so."""
    from distlite import distributed_c10d

    listed = {*distlite.__all__, *distlite._MODULES}
    is_listed = name.startswith("_") or name in listed
    return is_listed and hasattr(distlite, name) and hasattr(distributed_c10d, name)


def test_the_listed_names_exist():
    assert len(set(distlite.__all__)) == len(distlite.__all__)
    for name in distlite.__all__:
        assert getattr(distlite, name) is not None or name == "default_pg_timeout"
    with pytest.raises(AttributeError, match="'no_such_name'"):
        distlite.no_such_name  # noqa: B018


def names_of(torch_distributed: Any) -> dict[str, list[str]]:
    """Public names that a program can have from torch.distributed, in our scope."""
    from torch.distributed import distributed_c10d

    shared = sorted(set(distributed_c10d.__all__))
    own = {
        *("DeviceMesh", "DistBackendError", "DistError", "DistNetworkError"),
        *("DistStoreError", "FileStore", "HashStore", "QueueEmptyError", "TCPStore"),
        *("breakpoint", "init_device_mesh", "is_available", "rendezvous"),
        *("register_rendezvous_handler", "set_debug_level"),
        "set_debug_level_from_env",
    }
    assert own <= set(dir(torch_distributed))
    return {"distributed_c10d": shared, "distributed": sorted(own)}


def main() -> None:
    """Records the table."""
    import torch.distributed

    warnings.simplefilter("ignore")
    table: dict[str, Any] = record(torch.distributed)
    table["names"] = names_of(torch.distributed)
    rows = [f"{json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table)]
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
