# SPDX-License-Identifier: BSD-3-Clause
"""distlite as a backend of torch.distributed, for tensors in the CPU's memory.

Importing this module registers the backend "distlite" by torch's public interface for
backends: afterwards `torch.distributed.init_process_group("distlite")` and
`init_process_group("cpu:distlite,cuda:nccl")` make groups whose tensors on the CPU go
through distlite, and those on other devices through torch's own backends.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any

import torch.distributed

from .errors import DistBackendError, DistNetworkError, DistStoreError
from .process_group import Options, ProcessGroupDistlite, create

__all__ = [
    "DistBackendError",
    "DistNetworkError",
    "DistStoreError",
    "Options",
    "ProcessGroupDistlite",
    "monitored_barrier",
]


def monitored_barrier(
    group: Any = None,
    timeout: timedelta | float | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """Waits for all ranks of the group, and says which have not arrived.

    `torch.distributed.monitored_barrier` refuses every backend but gloo by its name;
    this is the same function for a group of the backend "distlite".

    Args:
        group: The group; None is torch's default group.
        timeout: The time to wait; None is the group's timeout.
        wait_all_ranks: If True, all ranks that are absent are named, and not only the
            first.

    Raises:
        DistBackendError: A rank has not arrived within the timeout.
    """
    chosen = torch.distributed.group.WORLD if group is None else group
    if chosen is torch.distributed.GroupMember.NON_GROUP_MEMBER:
        warnings.warn(
            "monitored_barrier does nothing on a rank that is not in the group",
            stacklevel=2,
        )
        return
    if not isinstance(chosen, ProcessGroupDistlite):
        raise ValueError("monitored_barrier: the group's backend is not distlite")
    chosen.monitored_barrier(timeout, wait_all_ranks)


def _register() -> None:
    backends = torch.distributed.Backend
    if "distlite" not in backends.backend_list:
        backends.register_backend(
            "distlite", create, extended_api=True, devices=["cpu"]
        )


_register()
