# SPDX-License-Identifier: BSD-3-Clause
"""ProcessGroupGloo: a group made by hand, under torch's name and with its options."""

from __future__ import annotations

from datetime import timedelta

from .. import _C
from .._C import ProcessGroup, Store
from ..constants import default_pg_timeout

__all__ = ["ProcessGroupGloo"]


class GlooOptions:
    """The options that the constructor takes in place of a timeout."""

    def __init__(self) -> None:
        self._timeout: timedelta = default_pg_timeout
        self._threads = 2
        self.global_ranks_in_group: list[int] = []
        self.group_name = ""

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"ProcessGroupGloo._Options({fields})"

    @property
    def backend(self) -> str:
        """Returns the name of the backend that the options are for."""
        return "gloo"


class ProcessGroupGloo(ProcessGroup):
    """A group with the CPU backend, made directly from a store.

    Every rank constructs it with the same store; the constructor returns when all ranks
    have called it. Arrays on CUDA devices are copied to the CPU's memory and back.

    Args:
        store: A store that the ranks share.
        rank: The rank of this process in the group.
        size: The number of ranks.
        timeout: The time that each operation may take, a `timedelta` or seconds, 30
            minutes by default; or `ProcessGroupGloo._Options()`.
        options: `ProcessGroupGloo._Options()`, whose `_timeout` is used.

    Raises:
        DistStoreError: The other ranks did not call it within the timeout.

    Example:
        >>> group = dist.ProcessGroupGloo(store, rank, 2, timeout=20)
        >>> values = np.array([rank + 1.0])
        >>> group.allreduce(values).wait()
        True
        >>> values
        array([3.])
    """

    Options = GlooOptions
    _Options = GlooOptions

    def __new__(
        cls,
        store: Store,
        rank: int,
        size: int,
        timeout: timedelta | float | GlooOptions = default_pg_timeout,
        options: GlooOptions | None = None,
    ) -> ProcessGroupGloo:
        told = timeout if options is None else options
        limit = told._timeout if isinstance(told, GlooOptions) else told
        made = super().__new__(cls, store, rank, size, limit, backend="gloo")
        _C._device_serve(made, "gloo", None, False)
        return made
