# SPDX-License-Identifier: BSD-3-Clause
"""torch.distributed without torch: stores, process groups and collectives."""

from ._C import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    FileStore,
    HashStore,
    PrefixStore,
    ProcessGroup,
    QueueEmptyError,
    Store,
    TCPStore,
    Work,
    all_gather,
    all_gather_single,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    gather_v,
    irecv,
    isend,
    monitored_barrier,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    scatter,
    scatter_v,
    send,
)
from ._version import __version__ as __version__
from .backends import (
    Backend,
    BackendConfig,
    best_backend,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_ucc_available,
    is_xccl_available,
)
from .collectives import (
    all_gather_arrays,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_v,
    all_reduce_coalesced,
    reduce_scatter_tensor,
    reduce_scatter_v,
)
from .constants import default_pg_timeout
from .debug import (
    DebugLevel,
    breakpoint,
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from .futures import Future, collect_all, wait_all

# Also what gives ProcessGroup its operations as methods.
from .group_methods import CoalescedWork as CoalescedWork
from .groups import (
    _get_default_group as _get_default_group,
)
from .groups import (
    _get_default_store as _get_default_store,
)
from .groups import (
    _get_process_group_name as _get_process_group_name,
)
from .groups import (
    _rank_not_in_group as _rank_not_in_group,
)
from .groups import (
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from .lifecycle import (
    _store_based_barrier as _store_based_barrier,
)
from .lifecycle import (
    destroy_process_group,
    init_process_group,
    process_group,
)
from .p2p import P2POp, batch_isend_irecv
from .process_group_gloo import ProcessGroupGloo
from .reduce_op import ReduceOp, reduce_op, supports_complex
from .rendezvous import register_rendezvous_handler, rendezvous
from .world import (
    GroupMember,
    get_backend,
    get_backend_config,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    is_available,
    is_initialized,
    is_torchelastic_launched,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .coalescing import _coalescing_manager as _coalescing_manager
    from .compat import GroupName, record_comm
    from .compat import (
        _create_process_group_wrapper as _create_process_group_wrapper,
    )
    from .device_mesh import init_device_mesh
    from .mesh import DeviceMesh
    from .nccl import ProcessGroupNCCL, cuda_stream
    from .object_p2p import recv_object_list, send_object_list
    from .objects import (
        all_gather_object,
        broadcast_object_list,
        gather_object,
        scatter_object_list,
        set_safe_objects,
    )
    from .options import (
        AllgatherOptions,
        AllreduceCoalescedOptions,
        AllreduceOptions,
        AllToAllOptions,
        BarrierOptions,
        BroadcastOptions,
        GatherOptions,
        ReduceOptions,
        ReduceScatterOptions,
        ScatterOptions,
    )
    from .reduce_op import _make_nccl_premul_sum as _make_nccl_premul_sum
    from .regroup import shrink_group, split_group
    from .safe_encode import register_safe_type
    from .shared import (
        shared_empty,
        shared_empty_like,
        shared_zeros,
        shared_zeros_like,
    )

__all__ = [
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "Backend",
    "BackendConfig",
    "BarrierOptions",
    "BroadcastOptions",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "Future",
    "GatherOptions",
    "GroupMember",
    "GroupName",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "ProcessGroupGloo",
    "ProcessGroupNCCL",
    "QueueEmptyError",
    "ReduceOp",
    "ReduceOptions",
    "ReduceScatterOptions",
    "ScatterOptions",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_arrays",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_gather_v",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "best_backend",
    "breakpoint",
    "broadcast",
    "broadcast_object_list",
    "collect_all",
    "cuda_stream",
    "default_pg_timeout",
    "destroy_process_group",
    "gather",
    "gather_object",
    "gather_v",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "process_group",
    "record_comm",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "reduce_scatter_v",
    "register_rendezvous_handler",
    "register_safe_type",
    "rendezvous",
    "scatter",
    "scatter_object_list",
    "scatter_v",
    "send",
    "send_object_list",
    "set_debug_level",
    "set_debug_level_from_env",
    "set_safe_objects",
    "shared_empty",
    "shared_empty_like",
    "shared_zeros",
    "shared_zeros_like",
    "shrink_group",
    "split_group",
    "supports_complex",
    "wait_all",
]

# Modules that are imported when they are asked for.
_MODULES = (
    *("custom", "data_parallel", "device_mesh", "distributed_c10d", "nccl", "options"),
    "regroup",
)

# Rare names, by the module that has them, which is imported when one is asked for.
_LATER = {
    "GroupName": "compat",
    "_all_gather_base": "compat",
    "_coalescing_manager": "coalescing",
    "_create_process_group_wrapper": "compat",
    "_make_nccl_premul_sum": "reduce_op",
    "_reduce_scatter_base": "compat",
    "record_comm": "compat",
    "shared_empty": "shared",
    "shared_empty_like": "shared",
    "shared_zeros": "shared",
    "shared_zeros_like": "shared",
    "ProcessGroupNCCL": "nccl",
    "cuda_stream": "nccl",
    "DeviceMesh": "mesh",
    "init_device_mesh": "device_mesh",
    "shrink_group": "regroup",
    "split_group": "regroup",
    "all_gather_object": "objects",
    "broadcast_object_list": "objects",
    "gather_object": "objects",
    "recv_object_list": "object_p2p",
    "register_safe_type": "safe_encode",
    "scatter_object_list": "objects",
    "send_object_list": "object_p2p",
    "set_safe_objects": "objects",
    "AllToAllOptions": "options",
    "AllgatherOptions": "options",
    "AllreduceCoalescedOptions": "options",
    "AllreduceOptions": "options",
    "BarrierOptions": "options",
    "BroadcastOptions": "options",
    "GatherOptions": "options",
    "ReduceOptions": "options",
    "ReduceScatterOptions": "options",
    "ScatterOptions": "options",
}


if not TYPE_CHECKING:  # or every name would pass for one of this module

    def __getattr__(name: str) -> object:
        if name not in _LATER and name not in _MODULES:
            import sys

            raise AttributeError(
                f"module 'distlite' has no attribute {name!r}",
                name=name,
                obj=sys.modules[__name__],
            )
        from importlib import import_module

        if name in _MODULES:
            return import_module(f"distlite.{name}")

        value: object = getattr(import_module(f"distlite.{_LATER[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_MODULES})
