# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed without torch: stores, process groups and collectives."""

import sys

from ._version import __version__ as __version__

# The names of the package, by the module that has them; those that begin with an
# underscore are torch's private ones.  These two tables are the only list of them:
# `__all__` is made from it here, and `__init__.pyi`, which type checkers read in place
# of this file, by docs/package_stub.py (`make format`).

# Imported with the package; group_methods for the methods that it adds to ProcessGroup.
_AT_ONCE = {
    "_C": (
        "DistBackendError DistError DistNetworkError DistStoreError FileStore "
        "HashStore PrefixStore ProcessGroup QueueEmptyError Store TCPStore Work "
        "all_gather all_gather_single all_reduce all_to_all all_to_all_single barrier "
        "broadcast exscan gather gather_v irecv isend monitored_barrier recv reduce "
        "reduce_scatter reduce_scatter_single scan scatter scatter_v send"
    ),
    "groups.backends": (
        "Backend BackendConfig best_backend get_default_backend_for_device "
        "is_backend_available is_gloo_available is_mpi_available is_nccl_available "
        "is_ucc_available is_xccl_available"
    ),
    "groups.collectives": (
        "all_gather_arrays all_gather_coalesced all_gather_into_tensor "
        "all_reduce_coalesced gather_single reduce_scatter_tensor"
    ),
    "constants": "default_pg_timeout",
    "debug": (
        "DebugLevel breakpoint get_debug_level set_debug_level set_debug_level_from_env"
    ),
    "futures": "Future collect_all wait_all",
    "groups.group_methods": "",
    "groups.subgroups": (
        "_get_default_group _get_default_store _get_process_group_name "
        "_rank_not_in_group new_group new_subgroups new_subgroups_by_enumeration"
    ),
    "groups.lifecycle": (
        "_store_based_barrier destroy_process_group init_process_group process_group"
    ),
    "groups.p2p": "Message P2POp batch_isend_irecv iprobe probe sendrecv",
    "groups.process_group_gloo": "ProcessGroupGloo",
    "groups.reduce_op": "ReduceOp _make_nccl_premul_sum reduce_op supports_complex",
    "rendezvous": "register_rendezvous_handler rendezvous",
    "groups.world": (
        "GroupMember get_backend get_backend_config get_global_rank get_group_rank "
        "get_node_local_rank get_pg_count get_process_group_ranks get_rank "
        "get_world_size group is_available is_initialized is_torchelastic_launched "
        "set_timeout"
    ),
}

# Rare names, whose modules are imported when one is asked for.
_LATER = {
    "groups.agreement": "Agreement agree",
    "cartesian_grid": "Cartesian",
    "groups.coalescing": "_CoalescingManager _coalescing_manager",
    "groups.compat": ("GroupName _all_gather_base _reduce_scatter_base record_comm"),
    "device_mesh": "DeviceMesh init_device_mesh",
    "hooks": "Hooks Operation register_hooks",
    "groups.internals": "_broadcast_coalesced",
    "groups.nccl": "ProcessGroupNCCL cuda_stream",
    "notebook": "notebook_launcher",
    # Builtins, from the module that the first call of one of them needs.
    "objects.object_collectives": (
        "all_gather_object broadcast_object_list gather_object recv_object_list "
        "scatter_object_list send_object_list set_safe_objects"
    ),
    "groups.options": (
        "AllToAllOptions AllgatherOptions AllreduceCoalescedOptions AllreduceOptions "
        "BarrierOptions BroadcastOptions GatherOptions ReduceOptions "
        "ReduceScatterOptions ScatterOptions"
    ),
    "groups.reconfigure": (
        "_get_reconfigure_handle _reconfigure _supports_reconfigure"
    ),
    "groups.regroup": "shrink_group split split_group",
    "groups.stateless": "StatelessGroup stateless_group",
    "objects.safe_codec": "register_safe_type",
    "shared": "shared_zeros",
    "stores.relay": "StoreRelay store_relay",
    "tools.log_capture": "capture_log",
    "windows": "Window WindowLock",
}

# Public modules, which are imported when they are asked for.
_MODULES = (
    *("data_parallel", "device_mesh", "distributed_c10d", "elastic", "functional"),
    *("launch", "multiprocessing", "run", "spawn", "stores", "testing"),
)


# Public, but not shown by dir(): what few programs name, so that completion shows what
# many do.
_UNLISTED = (
    "AllToAllOptions AllgatherOptions AllreduceCoalescedOptions AllreduceOptions "
    "BackendConfig BarrierOptions BroadcastOptions DebugLevel GatherOptions "
    "GroupMember GroupName Hooks Message Operation ProcessGroupGloo "
    "ProcessGroupNCCL QueueEmptyError ReduceOptions ReduceScatterOptions "
    "ScatterOptions StatelessGroup StoreRelay WindowLock all_gather_coalesced "
    "all_reduce_coalesced best_backend breakpoint capture_log collect_all cuda_stream "
    "default_pg_timeout device_mesh distributed_c10d get_backend_config "
    "get_debug_level get_default_backend_for_device get_pg_count is_gloo_available "
    "is_mpi_available is_nccl_available is_torchelastic_launched is_ucc_available "
    "is_xccl_available launch multiprocessing new_subgroups_by_enumeration "
    "record_comm reduce_op register_rendezvous_handler register_safe_type rendezvous "
    "run set_debug_level set_debug_level_from_env set_safe_objects "
    "store_relay stores supports_complex"
)


def _import(home: str) -> object:
    __import__(f"distlite.{home}")
    return sys.modules[f"distlite.{home}"]


# setattr() interns names, as those in programs are: they are then found by address.
_self = sys.modules[__name__]
for _home, _names in _AT_ONCE.items():
    _module = _import(_home)
    for _name in _names.split():
        setattr(_self, _name, getattr(_module, _name))

_home_of = {name: home for home, names in _LATER.items() for name in names.split()}

__all__ = sorted(
    name
    for names in (*_AT_ONCE.values(), *_LATER.values())
    for name in names.split()
    if not name.startswith("_")
)


def __getattr__(name: str) -> object:
    if name in _home_of:
        value: object = getattr(_import(_home_of[name]), name)
        setattr(_self, name, value)
        return value
    if name in _MODULES:
        return _import(name)
    raise AttributeError(
        f"module 'distlite' has no attribute {name!r}", name=name, obj=_self
    )


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, "__version__"}.difference(_UNLISTED.split()))
