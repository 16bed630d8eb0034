# SPDX-License-Identifier: BSD-3-Clause
"""torch's module path for what is in the package itself; nothing is made here."""

from . import *  # noqa: F403
from . import __all__ as __all__
from .constants import default_pg_nccl_timeout as default_pg_nccl_timeout
from .groups.backends import BackendType as BackendType
from .groups.coalescing import (
    _coalescing_manager as _coalescing_manager,
    _CoalescingManager as _CoalescingManager,
    _IllegalWork as _IllegalWork,
)
from .groups.compat import (
    _all_gather_base as _all_gather_base,
    _create_work_from_future as _create_work_from_future,
    _reduce_scatter_base as _reduce_scatter_base,
)
from .groups.custom import DistributedBackendOptions as _DistributedBackendOptions  # noqa: F401
from .groups.group_devices import ErrorType as ErrorType
from .groups.lifecycle import _store_based_barrier as _store_based_barrier
from .groups.reconfigure import (
    ReconfigureOptions as ReconfigureOptions,
    _get_reconfigure_handle as _get_reconfigure_handle,
    _reconfigure as _reconfigure,
    _supports_reconfigure as _supports_reconfigure,
)
from .groups.regroup import (
    SHRINK_ABORT as SHRINK_ABORT,
    SHRINK_DEFAULT as SHRINK_DEFAULT,
)
from .groups.subgroups import (
    _get_default_group as _get_default_group,
    _get_default_store as _get_default_store,
    _get_process_group_name as _get_process_group_name,
    _rank_not_in_group as _rank_not_in_group,
)


def __getattr__(name: str) -> object:
    """The private names that other libraries use."""
    from .groups import internals

    if not name.startswith("_") or not hasattr(internals, name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(internals, name)
