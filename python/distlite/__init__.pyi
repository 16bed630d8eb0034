# SPDX-License-Identifier: BSD-3-Clause
# Written by docs/package_stub.py from the tables of __init__.py: change them there, and
# run `make format`.
# fmt: off
# ruff: noqa: I001

from ._version import __version__ as __version__
from ._C import (
    DistBackendError, DistError, DistNetworkError, DistStoreError, FileStore,
    HashStore, PrefixStore, ProcessGroup, QueueEmptyError, Store, TCPStore, Work,
    all_gather, all_gather_single, all_reduce, all_to_all, all_to_all_single, barrier,
    broadcast, exscan, gather, gather_v, irecv, isend, monitored_barrier, recv, reduce,
    reduce_scatter, reduce_scatter_single, scan, scatter, scatter_v, send,
)
from .groups.backends import (
    Backend, BackendConfig, best_backend, get_default_backend_for_device,
    is_backend_available, is_gloo_available, is_mpi_available, is_nccl_available,
    is_ucc_available, is_xccl_available,
)
from .groups.collectives import (
    all_gather_arrays, all_gather_coalesced, all_gather_into_tensor,
    all_reduce_coalesced, gather_single, reduce_scatter_tensor,
)
from .constants import default_pg_timeout
from .debug import (
    DebugLevel, breakpoint, get_debug_level, set_debug_level, set_debug_level_from_env,
)
from .futures import Future, collect_all, wait_all
from .groups.subgroups import (
    _get_default_group as _get_default_group, _get_default_store as _get_default_store,
    _get_process_group_name as _get_process_group_name,
    _rank_not_in_group as _rank_not_in_group, new_group, new_subgroups,
    new_subgroups_by_enumeration,
)
from .groups.lifecycle import (
    _store_based_barrier as _store_based_barrier, destroy_process_group,
    init_process_group, process_group,
)
from .groups.p2p import Message, P2POp, batch_isend_irecv, iprobe, probe, sendrecv
from .groups.process_group_gloo import ProcessGroupGloo
from .groups.reduce_op import (
    ReduceOp, _make_nccl_premul_sum as _make_nccl_premul_sum, reduce_op,
    supports_complex,
)
from .rendezvous import register_rendezvous_handler, rendezvous
from .groups.world import (
    GroupMember, get_backend, get_backend_config, get_global_rank, get_group_rank,
    get_node_local_rank, get_pg_count, get_process_group_ranks, get_rank,
    get_world_size, group, is_available, is_initialized, is_torchelastic_launched,
    set_timeout,
)
from .groups.agreement import Agreement, agree
from .cartesian_grid import Cartesian
from .groups.coalescing import (
    _CoalescingManager as _CoalescingManager,
    _coalescing_manager as _coalescing_manager,
)
from .groups.compat import (
    GroupName, _all_gather_base as _all_gather_base,
    _reduce_scatter_base as _reduce_scatter_base, record_comm,
)
from .device_mesh import DeviceMesh, init_device_mesh
from .hooks import Hooks, Operation, register_hooks
from .groups.internals import _broadcast_coalesced as _broadcast_coalesced
from .groups.nccl import ProcessGroupNCCL, cuda_stream
from .notebook import notebook_launcher
from .objects.object_collectives import (
    all_gather_object, broadcast_object_list, gather_object, recv_object_list,
    scatter_object_list, send_object_list, set_safe_objects,
)
from .groups.options import (
    AllToAllOptions, AllgatherOptions, AllreduceCoalescedOptions, AllreduceOptions,
    BarrierOptions, BroadcastOptions, GatherOptions, ReduceOptions,
    ReduceScatterOptions, ScatterOptions,
)
from .groups.reconfigure import (
    _get_reconfigure_handle as _get_reconfigure_handle, _reconfigure as _reconfigure,
    _supports_reconfigure as _supports_reconfigure,
)
from .groups.regroup import shrink_group, split, split_group
from .groups.stateless import StatelessGroup, stateless_group
from .objects.safe_codec import register_safe_type
from .shared import shared_zeros
from .stores.relay import StoreRelay, store_relay
from .tools.log_capture import capture_log
from .windows import Window, WindowLock

from . import data_parallel as data_parallel
from . import device_mesh as device_mesh
from . import distributed_c10d as distributed_c10d
from . import elastic as elastic
from . import functional as functional
from . import launch as launch
from . import multiprocessing as multiprocessing
from . import run as run
from . import spawn as spawn
from . import stores as stores
from . import testing as testing

__all__ = [
    "Agreement", "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions",
    "AllreduceOptions", "Backend", "BackendConfig", "BarrierOptions",
    "BroadcastOptions", "Cartesian", "DebugLevel", "DeviceMesh", "DistBackendError",
    "DistError", "DistNetworkError", "DistStoreError", "FileStore", "Future",
    "GatherOptions", "GroupMember", "GroupName", "HashStore", "Hooks", "Message",
    "Operation", "P2POp", "PrefixStore", "ProcessGroup", "ProcessGroupGloo",
    "ProcessGroupNCCL", "QueueEmptyError", "ReduceOp", "ReduceOptions",
    "ReduceScatterOptions", "ScatterOptions", "StatelessGroup", "Store", "StoreRelay",
    "TCPStore", "Window", "WindowLock", "Work", "agree", "all_gather",
    "all_gather_arrays", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_gather_single", "all_reduce", "all_reduce_coalesced",
    "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv", "best_backend",
    "breakpoint", "broadcast", "broadcast_object_list", "capture_log", "collect_all",
    "cuda_stream", "default_pg_timeout", "destroy_process_group", "exscan", "gather",
    "gather_object", "gather_single", "gather_v", "get_backend", "get_backend_config",
    "get_debug_level", "get_default_backend_for_device", "get_global_rank",
    "get_group_rank", "get_node_local_rank", "get_pg_count", "get_process_group_ranks",
    "get_rank", "get_world_size", "group", "init_device_mesh", "init_process_group",
    "iprobe", "irecv", "is_available", "is_backend_available", "is_gloo_available",
    "is_initialized", "is_mpi_available", "is_nccl_available",
    "is_torchelastic_launched", "is_ucc_available", "is_xccl_available", "isend",
    "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "notebook_launcher", "probe", "process_group", "record_comm", "recv",
    "recv_object_list", "reduce", "reduce_op", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "register_hooks",
    "register_rendezvous_handler", "register_safe_type", "rendezvous", "scan",
    "scatter", "scatter_object_list", "scatter_v", "send", "send_object_list",
    "sendrecv", "set_debug_level", "set_debug_level_from_env", "set_safe_objects",
    "set_timeout", "shared_zeros", "shrink_group", "split", "split_group",
    "stateless_group", "store_relay", "supports_complex", "wait_all",
]
