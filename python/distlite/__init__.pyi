# SPDX-License-Identifier: BSD-3-Clause
# Written by docs/package_stub.py from the tables of __init__.py: change them there, and
# run `make format`.
# fmt: off
# ruff: noqa: I001

from ._version import __version__ as __version__
from ._C import DistBackendError as DistBackendError
from ._C import DistError as DistError
from ._C import DistNetworkError as DistNetworkError
from ._C import DistStoreError as DistStoreError
from ._C import FileStore as FileStore
from ._C import HashStore as HashStore
from ._C import PrefixStore as PrefixStore
from ._C import ProcessGroup as ProcessGroup
from ._C import QueueEmptyError as QueueEmptyError
from ._C import Store as Store
from ._C import TCPStore as TCPStore
from ._C import Work as Work
from ._C import all_gather as all_gather
from ._C import all_gather_single as all_gather_single
from ._C import all_reduce as all_reduce
from ._C import all_to_all as all_to_all
from ._C import all_to_all_single as all_to_all_single
from ._C import barrier as barrier
from ._C import broadcast as broadcast
from ._C import exscan as exscan
from ._C import gather as gather
from ._C import gather_v as gather_v
from ._C import irecv as irecv
from ._C import isend as isend
from ._C import monitored_barrier as monitored_barrier
from ._C import recv as recv
from ._C import reduce as reduce
from ._C import reduce_scatter as reduce_scatter
from ._C import reduce_scatter_single as reduce_scatter_single
from ._C import scan as scan
from ._C import scatter as scatter
from ._C import scatter_v as scatter_v
from ._C import send as send
from .groups.backends import Backend as Backend
from .groups.backends import BackendConfig as BackendConfig
from .groups.backends import best_backend as best_backend
from .groups.backends import (
    get_default_backend_for_device as get_default_backend_for_device,
)
from .groups.backends import get_include as get_include
from .groups.backends import is_backend_available as is_backend_available
from .groups.backends import is_gloo_available as is_gloo_available
from .groups.backends import is_mpi_available as is_mpi_available
from .groups.backends import is_nccl_available as is_nccl_available
from .groups.backends import is_ucc_available as is_ucc_available
from .groups.backends import is_xccl_available as is_xccl_available
from .groups.collectives import all_gather_arrays as all_gather_arrays
from .groups.collectives import all_gather_coalesced as all_gather_coalesced
from .groups.collectives import all_gather_into_tensor as all_gather_into_tensor
from .groups.collectives import all_reduce_coalesced as all_reduce_coalesced
from .groups.collectives import reduce_scatter_tensor as reduce_scatter_tensor
from .constants import default_pg_timeout as default_pg_timeout
from .debug import DebugLevel as DebugLevel
from .debug import breakpoint as breakpoint
from .debug import get_debug_level as get_debug_level
from .debug import set_debug_level as set_debug_level
from .debug import set_debug_level_from_env as set_debug_level_from_env
from .futures import Future as Future
from .futures import collect_all as collect_all
from .futures import wait_all as wait_all
from .groups.subgroups import _get_default_group as _get_default_group
from .groups.subgroups import _get_default_store as _get_default_store
from .groups.subgroups import _get_process_group_name as _get_process_group_name
from .groups.subgroups import _rank_not_in_group as _rank_not_in_group
from .groups.subgroups import new_group as new_group
from .groups.subgroups import new_subgroups as new_subgroups
from .groups.subgroups import (
    new_subgroups_by_enumeration as new_subgroups_by_enumeration,
)
from .groups.lifecycle import _store_based_barrier as _store_based_barrier
from .groups.lifecycle import destroy_process_group as destroy_process_group
from .groups.lifecycle import init_process_group as init_process_group
from .groups.lifecycle import process_group as process_group
from .groups.p2p import Message as Message
from .groups.p2p import P2POp as P2POp
from .groups.p2p import batch_isend_irecv as batch_isend_irecv
from .groups.p2p import iprobe as iprobe
from .groups.p2p import probe as probe
from .groups.p2p import sendrecv as sendrecv
from .groups.process_group_gloo import ProcessGroupGloo as ProcessGroupGloo
from .groups.reduce_op import ReduceOp as ReduceOp
from .groups.reduce_op import reduce_op as reduce_op
from .groups.reduce_op import supports_complex as supports_complex
from .rendezvous import _create_store_from_options as _create_store_from_options
from .rendezvous import register_rendezvous_handler as register_rendezvous_handler
from .rendezvous import rendezvous as rendezvous
from .groups.world import GroupMember as GroupMember
from .groups.world import get_backend as get_backend
from .groups.world import get_backend_config as get_backend_config
from .groups.world import get_global_rank as get_global_rank
from .groups.world import get_group_rank as get_group_rank
from .groups.world import get_node_local_rank as get_node_local_rank
from .groups.world import get_pg_count as get_pg_count
from .groups.world import get_process_group_ranks as get_process_group_ranks
from .groups.world import get_rank as get_rank
from .groups.world import get_world_size as get_world_size
from .groups.world import group as group
from .groups.world import is_available as is_available
from .groups.world import is_initialized as is_initialized
from .groups.world import is_torchelastic_launched as is_torchelastic_launched
from .cartesian_grid import Cartesian as Cartesian
from .cartesian_grid import cartesian as cartesian
from .groups.coalescing import _CoalescingManager as _CoalescingManager
from .groups.coalescing import _coalescing_manager as _coalescing_manager
from .groups.compat import GroupName as GroupName
from .groups.compat import _all_gather_base as _all_gather_base
from .groups.compat import _reduce_scatter_base as _reduce_scatter_base
from .groups.compat import record_comm as record_comm
from .device_mesh import init_device_mesh as init_device_mesh
from .groups.internals import _broadcast_coalesced as _broadcast_coalesced
from .mesh import DeviceMesh as DeviceMesh
from .groups.nccl import ProcessGroupNCCL as ProcessGroupNCCL
from .groups.nccl import cuda_stream as cuda_stream
from .notebook import notebook_launcher as notebook_launcher
from .objects.object_p2p import recv_object_list as recv_object_list
from .objects.object_p2p import send_object_list as send_object_list
from .objects.object_collectives import all_gather_object as all_gather_object
from .objects.object_collectives import broadcast_object_list as broadcast_object_list
from .objects.object_collectives import gather_object as gather_object
from .objects.object_collectives import scatter_object_list as scatter_object_list
from .objects.object_collectives import set_safe_objects as set_safe_objects
from .groups.options import AllToAllOptions as AllToAllOptions
from .groups.options import AllgatherOptions as AllgatherOptions
from .groups.options import AllreduceCoalescedOptions as AllreduceCoalescedOptions
from .groups.options import AllreduceOptions as AllreduceOptions
from .groups.options import BarrierOptions as BarrierOptions
from .groups.options import BroadcastOptions as BroadcastOptions
from .groups.options import GatherOptions as GatherOptions
from .groups.options import ReduceOptions as ReduceOptions
from .groups.options import ReduceScatterOptions as ReduceScatterOptions
from .groups.options import ScatterOptions as ScatterOptions
from .groups.regroup import shrink_group as shrink_group
from .groups.regroup import split as split
from .groups.regroup import split_group as split_group
from .objects.safe_encode import register_safe_type as register_safe_type
from .persistent_calls import Persistent as Persistent
from .persistent_calls import persistent as persistent
from .shared import shared_zeros as shared_zeros
from .shared import shared_zeros_like as shared_zeros_like
from .windows import Window as Window
from .windows import WindowLock as WindowLock

from . import data_parallel as data_parallel
from . import device_mesh as device_mesh
from . import distributed_c10d as distributed_c10d
from . import functional as functional
from . import launch as launch
from . import multiprocessing as multiprocessing
from . import run as run
from . import spawn as spawn
from . import stores as stores
from . import testing as testing

__all__ = [
    "AllToAllOptions",
    "AllgatherOptions",
    "AllreduceCoalescedOptions",
    "AllreduceOptions",
    "Backend",
    "BackendConfig",
    "BarrierOptions",
    "BroadcastOptions",
    "Cartesian",
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
    "Message",
    "P2POp",
    "Persistent",
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
    "Window",
    "WindowLock",
    "Work",
    "all_gather",
    "all_gather_arrays",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
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
    "cartesian",
    "collect_all",
    "cuda_stream",
    "default_pg_timeout",
    "destroy_process_group",
    "exscan",
    "gather",
    "gather_object",
    "gather_v",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
    "get_global_rank",
    "get_group_rank",
    "get_include",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "iprobe",
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
    "notebook_launcher",
    "persistent",
    "probe",
    "process_group",
    "record_comm",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_op",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "register_rendezvous_handler",
    "register_safe_type",
    "rendezvous",
    "scan",
    "scatter",
    "scatter_object_list",
    "scatter_v",
    "send",
    "send_object_list",
    "sendrecv",
    "set_debug_level",
    "set_debug_level_from_env",
    "set_safe_objects",
    "shared_zeros",
    "shared_zeros_like",
    "shrink_group",
    "split",
    "split_group",
    "supports_complex",
    "wait_all",
]
